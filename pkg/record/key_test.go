package record_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/schemas"
)

type keyVectors struct {
	Keys []struct {
		Name       string           `json:"name"`
		Parts      []string         `json:"parts"`
		Key        string           `json:"key"`
		Partitions map[string]int32 `json:"partitions"`
	} `json:"keys"`
	DetailKeys []struct {
		Name  string   `json:"name"`
		Parts []string `json:"parts"`
		Key   string   `json:"key"`
	} `json:"detailKeys"`
	RefusedDetailKeys []struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	} `json:"refusedDetailKeys"`
	RefusedIDs []struct {
		Name string `json:"name"`
		ID   string `json:"id"`
	} `json:"refusedIds"`
	RefusedKeys []struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	} `json:"refusedKeys"`
}

func vectors(t testing.TB) keyVectors {
	t.Helper()
	var v keyVectors
	if err := json.Unmarshal(schemas.KeyVectors, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Keys) == 0 || len(v.DetailKeys) == 0 || len(v.RefusedDetailKeys) == 0 || len(v.RefusedIDs) == 0 || len(v.RefusedKeys) == 0 {
		t.Fatal("the vectors are empty")
	}
	return v
}

// The vectors were checked against org.apache.kafka.common.utils.Utils of kafka-clients 4.3.1.
func TestKey_FollowsTheVectors(t *testing.T) {
	for _, v := range vectors(t).Keys {
		t.Run(v.Name, func(t *testing.T) {
			escaped := make([]string, len(v.Parts))
			for i, p := range v.Parts {
				escaped[i] = record.EscapeKeyPart(p)
			}
			if got := strings.Join(escaped, "/"); got != v.Key {
				t.Fatalf("key is %q, want %q", got, v.Key)
			}
			var made string
			var err error
			switch {
			case len(v.Parts) == 2:
				made, err = record.ThreadKey(v.Parts[0], v.Parts[1])
			case len(v.Parts) == 3:
				made, err = record.RunKey(v.Parts[0], v.Parts[1], v.Parts[2])
			case v.Parts[3] == "MESSAGES_SNAPSHOT":
				made, err = record.SnapshotKey(v.Parts[0], v.Parts[1], v.Parts[2], "MESSAGES_SNAPSHOT")
			default:
				made, err = record.SnapshotKey(v.Parts[0], v.Parts[1], v.Parts[2], "STATE_SNAPSHOT")
			}
			if err != nil || made != v.Key {
				t.Errorf("made key is %q, %v; want %q", made, err, v.Key)
			}
			parts, err := record.SplitKey(v.Key)
			if err != nil || strings.Join(parts, "\x01") != strings.Join(v.Parts, "\x01") {
				t.Errorf("parts are %q, %v; want %q", parts, err, v.Parts)
			}
			for n, want := range map[int32]int32{7: v.Partitions["7"], 12: v.Partitions["12"]} {
				if got := record.Partition([]byte(v.Key), n); got != want {
					t.Errorf("partition of %d is %d, want %d", n, got, want)
				}
			}
		})
	}
}

func TestDetailKey_FollowsTheVectors(t *testing.T) {
	for _, v := range vectors(t).DetailKeys {
		t.Run(v.Name, func(t *testing.T) {
			key, err := record.DetailKey(v.Parts[0], v.Parts[1], v.Parts[2])
			if err != nil || key != v.Key {
				t.Errorf("key is %q, %v; want %q", key, err, v.Key)
			}
			tenant, thread, name, err := record.SplitDetailKey(v.Key)
			if err != nil || !slices.Equal([]string{tenant, thread, name}, v.Parts) {
				t.Errorf("parts are %q, %q, %q, %v; want %q", tenant, thread, name, err, v.Parts)
			}
			if parts, err := record.SplitKey(v.Key); err == nil {
				t.Errorf("it is a key of another record, too: %q", parts)
			}
		})
	}
	if _, err := record.DetailKey("acme", "", record.DetailTitle); !errors.Is(err, record.ErrInvalidID) {
		t.Errorf("error of an empty thread is %v, want ErrInvalidID", err)
	}
}

func TestSplitDetailKey_RefusesTheVectors(t *testing.T) {
	for _, v := range vectors(t).RefusedDetailKeys {
		t.Run(v.Name, func(t *testing.T) {
			_, _, name, err := record.SplitDetailKey(v.Key)
			if !errors.Is(err, record.ErrInvalidKey) && !errors.Is(err, record.ErrInvalidID) {
				t.Errorf("name is %q, error is %v; want ErrInvalidKey or ErrInvalidID", name, err)
			}
		})
	}
}

func TestValidateID_RefusesTheVectors(t *testing.T) {
	for _, v := range vectors(t).RefusedIDs {
		t.Run(v.Name, func(t *testing.T) {
			if err := record.ValidateID(v.ID); !errors.Is(err, record.ErrInvalidID) {
				t.Errorf("error is %v, want ErrInvalidID", err)
			}
			if _, err := record.ThreadKey("acme", v.ID); !errors.Is(err, record.ErrInvalidID) {
				t.Errorf("error of ThreadKey is %v, want ErrInvalidID", err)
			}
		})
	}
	if err := record.ValidateID("\xff"); !errors.Is(err, record.ErrInvalidID) { // JSON cannot say it
		t.Errorf("error of a byte that is not UTF-8 is %v, want ErrInvalidID", err)
	}
}

func TestSplitKey_RefusesTheVectors(t *testing.T) {
	for _, v := range vectors(t).RefusedKeys {
		t.Run(v.Name, func(t *testing.T) {
			parts, err := record.SplitKey(v.Key)
			if !errors.Is(err, record.ErrInvalidKey) && !errors.Is(err, record.ErrInvalidID) {
				t.Errorf("parts are %q, error is %v; want ErrInvalidKey or ErrInvalidID", parts, err)
			}
		})
	}
}

func TestSnapshotKey_RefusesOtherKinds(t *testing.T) {
	if key, err := record.SnapshotKey("acme", "t", "b", "RUN_STARTED"); err == nil {
		t.Errorf("key is %q, want an error", key)
	}
}

// Kafka's own test vectors for murmur2 (UtilsTest).
func TestPartition_FollowsKafka(t *testing.T) {
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string":                       -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		for _, n := range []int32{1, 7, 12, 1000} {
			if got, want := record.Partition([]byte(key), n), (hash&0x7fffffff)%n; got != want {
				t.Errorf("partition of %q among %d is %d, want %d", key, n, got, want)
			}
		}
	}
}

// Invariants: unescaping gives back what was escaped; the escaped form holds no slash and only
// characters that stay; nothing but the escaped form of something can be unescaped.
func FuzzKeyPart_RoundTrip(f *testing.F) {
	for _, v := range vectors(f).Keys {
		for _, p := range v.Parts {
			f.Add(p)
		}
		f.Add(v.Key)
	}
	for _, v := range vectors(f).RefusedKeys {
		f.Add(v.Key)
	}
	f.Fuzz(func(t *testing.T, s string) {
		escaped := record.EscapeKeyPart(s)
		if strings.ContainsAny(escaped, "/ +\x00") {
			t.Fatalf("%q is escaped to %q", s, escaped)
		}
		back, err := record.UnescapeKeyPart(escaped)
		if err != nil || back != s {
			t.Fatalf("%q is escaped to %q and back to %q, %v", s, escaped, back, err)
		}
		if plain, err := record.UnescapeKeyPart(s); err == nil && record.EscapeKeyPart(plain) != s {
			t.Fatalf("%q is unescaped to %q, which is escaped to %q", s, plain, record.EscapeKeyPart(plain))
		}
		if parts, err := record.SplitKey(s); err == nil {
			for i := range parts {
				parts[i] = record.EscapeKeyPart(parts[i])
			}
			if strings.Join(parts, "/") != s {
				t.Fatalf("key %q has the parts %q", s, parts)
			}
		}
	})
}
