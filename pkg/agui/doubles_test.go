package agui

import (
	"encoding/json"
	"strings"
	"testing"
)

// What no double can hold is null in what is read of an event, and what one can hold stays as it is written.
func TestDecode_NumbersBeyondDoublesAreNull(t *testing.T) {
	nines := strings.Repeat("9", 400)
	for _, n := range []string{"1e309", "-1e309", "1E+400", "1.7976931348623159e308", "-" + nines, nines + ".5e1", "0.001e400", "1e" + nines,
		strings.Repeat("9", 300) + "e9", strings.Repeat("9", 211) + "e98", nines + "e-50", "1e0309"} {
		in := ` {"type": "CUSTOM", "name":"1e400 \"","value":[ ` + n + ` ,{"1e400":"` + n + `","n":` + n + `}], "zeta":` + n + `} `
		ev, err := Decode([]byte(in))
		if err != nil {
			t.Fatalf("%.40s: %v", n, err)
		}
		if string(ev.Raw) != in {
			t.Errorf("%.40s: raw changed: %.200s", n, ev.Raw)
		}
		if got, want := string(ev.JSON(FieldValue)), `[ null ,{"1e400":"`+n+`","n":null}]`; got != want {
			t.Errorf("%.40s: got %.200s, want %.200s", n, got, want)
		}
		if got, want := string(ev.Body), ` {"type": "CUSTOM", "name":"1e400 \"","value":[ null ,{"1e400":"`+n+`","n":null}], "zeta":null} `; got != want {
			t.Errorf("%.40s: got %.200s, want %.200s", n, got, want)
		}
		input, err := DecodeInput([]byte(`{"messages":[{"id":"a","role":"user","content":"`+n+`","metadata":{"n":`+n+`}}],"state":{"n":`+n+`}}`), "")
		if err != nil {
			t.Fatalf("%.40s: %v", n, err)
		}
		if got := string(input.State) + string(input.Messages[0].Get("metadata")) + string(Lookup(input.Raw, "state")); got != `{"n":null}{"n":null}{"n":null}` {
			t.Errorf("%.40s: got %.200s", n, got)
		}
	}
	for _, n := range []string{"1e308", "-1.7976931348623157e308", "1e-400", "0e400", "1" + strings.Repeat("0", 308), "0." + nines,
		"-0." + nines + "e308", nines + "e-100", strings.Repeat("9", 200) + "e99", "12345678901234567890"} {
		in := []byte(`{"type":"STATE_SNAPSHOT","snapshot":[` + n + `]}`)
		ev, err := Decode(in)
		if err != nil {
			t.Fatalf("%.40s: %v", n, err)
		}
		if got := string(ev.JSON(FieldSnapshot)); got != "["+n+"]" || &ev.Body[0] != &in[0] {
			t.Errorf("%.40s: got %.200s", n, got)
		}
	}
}

// FuzzWithinDoubles: what is read of an accepted event is JSON that a reader of doubles takes, and nothing changes in
// what such a reader takes already.
func FuzzWithinDoubles(f *testing.F) {
	f.Add([]byte(`{"type":"CUSTOM","name":"1e400","value":[1e400,-1E+999,{"a":0.1e-400}]}`))
	f.Add([]byte(`{"type":"STATE_DELTA","delta":{"op":"add","path":"/a","value":1e400}}`))
	f.Add([]byte(`{"type":"RUN_STARTED","runId":"r","input":{"messages":[],"state":1e400}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ev, err := Decode(b)
		if err != nil {
			return
		}
		var v any
		if err := json.Unmarshal(ev.Body, &v); err != nil {
			t.Fatalf("%s: %v", ev.Body, err)
		}
		if err := json.Unmarshal(ev.Raw, &v); (err == nil) != (string(ev.Raw) == string(ev.Body)) {
			t.Fatalf("%s became %s: %v", ev.Raw, ev.Body, err)
		}
	})
}
