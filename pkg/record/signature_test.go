package record

import (
	"bytes"
	"strings"
	"testing"
)

const signingKey1, signingKey2 = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"

func parsedKeys(t testing.TB, lines ...string) SigningKeys {
	t.Helper()
	keys, err := ParseSigningKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// Whatever a producer that has no key changes of a signed record, the signature holds no longer.
func TestSignature_HoldsForOneRecord(t *testing.T) {
	keys := parsedKeys(t, signingKey1)
	headers := append(Headers{Kind: KindEvent, RunID: "r1", Seq: 7, Agent: "shop", Labels: []Label{{"user", "u"}}}.Encode(),
		Header{"x-request", []byte("x")})
	key, value := []byte("acme/t1"), []byte(`{"type":"RUN_FINISHED"}`)
	mac := Sign(keys, key, headers, value)
	signed := append(headers, Header{HeaderMAC, mac})
	with := func(name, value string) []Header {
		var out []Header
		for _, h := range signed {
			if h.Key == name {
				h.Value = []byte(value)
			}
			out = append(out, h)
		}
		return out
	}
	others := append([]Header{{HeaderRetryOf, nil}}, with("x-request", "y")...)
	if len(mac) != macText {
		t.Fatalf("the signature is %x", mac)
	}
	for name, c := range map[string]struct {
		key     string
		headers []Header
		value   string
		want    Signature
	}{
		"as it is":                        {"acme/t1", signed, string(value), SignatureRight},
		"with other headers":              {"acme/t1", others, string(value), SignatureRight},
		"under another tenant's key":      {"other/t1", signed, string(value), SignatureWrong},
		"under another thread's key":      {"acme/t2", signed, string(value), SignatureWrong},
		"with a byte moved from the key":  {"acme/t", signed, "1" + string(value), SignatureWrong},
		"as another kind":                 {"acme/t1", with(HeaderKind, "erase"), string(value), SignatureWrong},
		"without a kind":                  {"acme/t1", append(signed[:1:1], signed[2:]...), string(value), SignatureWrong},
		"of another run":                  {"acme/t1", with(HeaderRunID, "r2"), string(value), SignatureWrong},
		"with another number":             {"acme/t1", with(HeaderSeq, "8"), string(value), SignatureWrong},
		"by another agent":                {"acme/t1", with(HeaderAgent, "desk"), string(value), SignatureWrong},
		"with another label":              {"acme/t1", with(HeaderLabelPrefix+"user", "v"), string(value), SignatureWrong},
		"with one label more":             {"acme/t1", append(signed, Header{HeaderLabelPrefix + "x", nil}), string(value), SignatureWrong},
		"with a second run id":            {"acme/t1", append(signed, Header{HeaderRunID, []byte("r2")}), string(value), SignatureWrong},
		"marked as synthetic":             {"acme/t1", append(signed, Header{HeaderSynthetic, []byte("true")}), string(value), SignatureWrong},
		"with another value":              {"acme/t1", signed, string(value) + " ", SignatureWrong},
		"without a signature":             {"acme/t1", headers, string(value), SignatureWrong},
		"with a signature that is longer": {"acme/t1", with(HeaderMAC, string(mac)+"x"), string(value), SignatureWrong},
		"with a shorter one":              {"acme/t1", with(HeaderMAC, string(mac[:21])), string(value), SignatureWrong},
	} {
		if got := CheckSignature(keys, []byte(c.key), c.headers, []byte(c.value)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	for _, c := range []struct {
		keys    SigningKeys
		headers []Header
		want    Signature
	}{
		{parsedKeys(t, signingKey2, signingKey1), signed, SignatureRight},
		{parsedKeys(t, signingKey2), signed, SignatureWrong},
		{nil, signed, SignatureUnknown},
		{nil, headers, SignatureNone},
	} {
		if got := CheckSignature(c.keys, key, c.headers, value); got != c.want {
			t.Errorf("with %d keys: %d, want %d", len(c.keys), got, c.want)
		}
	}
	if again := Sign(parsedKeys(t, signingKey2, signingKey1), key, headers, value); bytes.Equal(again, mac) {
		t.Error("the first key does not sign")
	}
}

func TestParseSigningKeys_SaysWhatToDo(t *testing.T) {
	if keys := parsedKeys(t, "", "  "+signingKey1+"\r", signingKey2, ""); len(keys) != 2 {
		t.Errorf("%d keys", len(keys))
	}
	many := ""
	for i := range maxSigningKeys + 1 {
		many += signingKey1 + string(rune('a'+i)) + "\n"
	}
	for text, want := range map[string]string{
		"": "openssl rand -hex 32", signingKey1[1:]: "key 1 has 31 characters", many: "more than 8 keys",
		signingKey1 + "\n" + signingKey1: "key 2 is there twice", strings.Repeat("x", 1025): "write 32 to 1024",
	} {
		_, err := ParseSigningKeys([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), signingKey1) {
			t.Errorf("%.40q gives %v, want %q", text, err, want)
		}
	}
}

// A signature does not cost the headers of a run's records their short way.
func TestParseHeadersLike_SharesTheHeadersOfSignedRecords(t *testing.T) {
	like := Headers{Version: Version, Kind: KindEvent, RunID: "r1", Seq: 1, Agent: "shop"}
	next := like
	next.Seq = 2
	hs := append(next.Encode(), Header{HeaderMAC, make([]byte, macText)})
	if seq, ok := numberAfter(hs, &like); !ok || seq != 2 {
		t.Errorf("got %d, %v", seq, ok)
	}
	if got, err := ParseHeadersLike(hs, &like); err != nil || !got.Equal(next) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func BenchmarkSignature(b *testing.B) {
	keys := parsedKeys(b, signingKey1)
	headers := Headers{Kind: KindEvent, RunID: "run-00000001", Seq: 712}.Encode()
	key, value := []byte("acme/thread-1"), bytes.Repeat([]byte("x"), 150)
	headers = append(headers, Header{HeaderMAC, Sign(keys, key, headers, value)})
	b.ReportAllocs()
	for b.Loop() {
		if CheckSignature(keys, key, headers, value) != SignatureRight {
			b.Fatal("it is wrong")
		}
	}
}
