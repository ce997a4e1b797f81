package agui

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

type plainTexts struct {
	One  string            `json:"one"`
	None string            `json:"none,omitempty"`
	Some *string           `json:"some"`
	List []string          `json:"list"`
	Map  map[string]string `json:"map"`
	Left map[string]string `json:"left,omitempty"`
}

type texts struct {
	One  String            `json:"one"`
	None String            `json:"none,omitempty"`
	Some *String           `json:"some"`
	List Strings           `json:"list"`
	Map  StringMap[String] `json:"map"`
	Left StringMap[String] `json:"left,omitempty"`
}

// What is UTF-8 is written and read as encoding/json does it, to the byte, with HTML escaped and without.
func TestString_IsAsEncodingJSONHasIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("a\"\\/<&>\u2028\u2029\n\x00\x1f\x7fé🦊"))))
		plain := plainTexts{One: text.Draw(t, "one"), List: rapid.SliceOf(text).Draw(t, "list"), Map: rapid.MapOf(text, text).Draw(t, "map")}
		if rapid.Bool().Draw(t, "nothing") {
			plain.List, plain.Map = nil, nil
		}
		if rapid.Bool().Draw(t, "some") {
			plain.Some = &plain.One
		}
		own := texts{One: String(plain.One), Some: (*String)(plain.Some), List: plain.List}
		if plain.Map != nil {
			own.Map = StringMap[String]{}
		}
		for k, v := range plain.Map {
			own.Map[k] = String(v)
		}
		for _, html := range []bool{true, false} {
			want, got := encoded(t, plain, html), encoded(t, own, html)
			if !bytes.Equal(got, want) {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			var back texts
			if err := json.Unmarshal(want, &back); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, own) {
				t.Fatalf("%s reads as\n%+v\nwant\n%+v", want, back, own)
			}
		}
	})
}

// What is half a surrogate pair stays what it is, and each another one.
func TestString_KeepsHalvesOfSurrogatePairs(t *testing.T) {
	const text = `{"one":"\ud800","some":"a\udfffb","list":["\ud801","\ud802"],"map":{"\ud803":"\ud804","\ud805":"\udbff","🦊":""}}`
	var all texts
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Map) != 3 || all.List[0] == all.List[1] || all.One != "\xed\xa0\x80" {
		t.Errorf("read as %+v", all)
	}
	for _, html := range []bool{true, false} {
		if got := encoded(t, all, html); string(got) != text {
			t.Errorf("got\n%s\nwant\n%s", got, text)
		}
	}
}

func TestString_TakesNothingElse(t *testing.T) {
	for _, in := range []string{`{"one":1}`, `{"list":[1]}`, `{"list":{}}`, `{"map":[]}`, `{"map":{"a":1}}`, `{"map":"x"}`} {
		var all texts
		if err := json.Unmarshal([]byte(in), &all); err == nil {
			t.Errorf("%s reads as %+v", in, all)
		}
	}
	all := texts{One: "kept", List: Strings{"a"}, Map: StringMap[String]{"a": "b"}}
	if err := json.Unmarshal([]byte(`{"one":null,"list":null,"map":null}`), &all); err != nil || all.One != "kept" || all.List != nil || all.Map != nil {
		t.Errorf("null reads as %+v, %v", all, err)
	}
	// encoding/json takes what is not UTF-8.
	if err := json.Unmarshal([]byte("{\"one\":\"a\xffb\",\"map\":{\"\xed\xa0\x80\":\"\"}}"), &all); err != nil || all.One != "a\ufffdb" ||
		!reflect.DeepEqual(all.Map, StringMap[String]{"\ufffd": ""}) {
		t.Errorf("other bytes read as %+v, %v", all, err)
	}
}

func encoded(t rapid.TB, v any, html bool) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
