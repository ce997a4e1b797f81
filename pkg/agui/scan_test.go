package agui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheck_AcceptsWhatJSONIs(t *testing.T) {
	for _, in := range []string{
		`null`, `true`, ` false `, `0`, `-0`, `-0.5e+10`, `1E9`, `""`, `"\ud83d"`, `"é\u00e9\/"`, `[]`, `[1,[2],{}]`,
		`{"a":{"b":[null]},"a":1}`, "\t{ \"a\" : 1 }\r\n", `12345678901234567890.123456789`,
	} {
		if err := Check([]byte(in)); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestCheck_RefusesTheRest(t *testing.T) {
	for _, in := range []string{
		``, ` `, `nul`, `nulL`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `"`, `"\x"`, `"\u12g4"`, `"\u12`, "\"\n\"", `[`, `[1`, `[1,]`,
		`[,1]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{a:1}`, `{"a" 1}`, `1 2`, `{}x`, "\"\xff\"", `NaN`, `'a'`,
	} {
		err := Check([]byte(in))
		if !IsMalformed(err) {
			t.Errorf("%q: want a malformed error, got %v", in, err)
		}
	}
}

func TestCheck_LimitsDepth(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	if err := Check([]byte(deep)); err != nil {
		t.Errorf("%d levels: %v", MaxDepth, err)
	}
	err := Check([]byte("[" + deep + "]"))
	var m *MalformedError
	if !errors.As(err, &m) || m.Rule != RuleTooDeep {
		t.Errorf("%d levels: want %s, got %v", MaxDepth+1, RuleTooDeep, err)
	}
	// An event is an object round its members: the limit counts it.
	inEvent := `{"type":"CUSTOM","name":"n","value":` + deep[1:len(deep)-1] + `}`
	if _, err := Envelope([]byte(inEvent)); err != nil {
		t.Errorf("event of %d levels: %v", MaxDepth, err)
	}
	inEvent = `{"type":"CUSTOM","name":"n","value":` + deep + `}`
	if _, err := Envelope([]byte(inEvent)); !IsMalformed(err) {
		t.Errorf("event of %d levels: want an error, got %v", MaxDepth+1, err)
	}
}

// An event of some types may be deeper: docs/fold.md says why.
func TestDecode_LimitsDepthByType(t *testing.T) {
	for form, limit := range map[string]int{
		`{"type":"STATE_SNAPSHOT","snapshot":…}`:                                                        513,
		`{"type":"STATE\u005fSNAPSHOT","state":…}`:                                                      513,
		`{"type":"STATE_DELTA","delta":[{"op":"add","path":"","value":…}]}`:                             512,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"invented","k":…}]}`:                  516,
		`{"type":"RUN_STARTED","runId":"r","input":{"messages":[{"id":"a","role":"u","k":…}]}}`:         517,
		`{"type":"RUN_STARTED","runId":"r","input":{"messages":[],"forwardedProps":…}}`:                 517,
		`{"type":"RUN_STARTED","runId":"r","input":{"messages":[],"state":…}}`:                          514,
		`{"type":"RUN_STARTED","runId":"r","input":{"messages":[]},"metadata":{"k":…}}`:                 517,
		`{"type":"TEXT_MESSAGE_END","messageId":"a","metadata":{"k":…}}`:                                512,
		`{"type":"UNKNOWN","messages":[{"id":"a","role":"invented","k":…}],"type":"OF ANOTHER","k":{}}`: 512,
	} {
		around, _, _ := strings.Cut(form, "…")
		levels := strings.Count(around, "{") + strings.Count(around, "[") - strings.Count(around, "}") - strings.Count(around, "]")
		of := func(depth int) []byte {
			depth -= levels
			return []byte(strings.Replace(form, "…", strings.Repeat("[", depth)+strings.Repeat("]", depth), 1))
		}
		if _, err := Decode(of(limit)); err != nil {
			t.Errorf("%d levels: %v in %s", limit, err, form)
		}
		_, err := Decode(of(limit + 1))
		var m *MalformedError
		if !errors.As(err, &m) || m.Rule != RuleTooDeep {
			t.Errorf("%d levels: want %s, got %v in %s", limit+1, RuleTooDeep, err, form)
		}
	}
}

func TestMembers_KeepOrderAndText(t *testing.T) {
	obj := json.RawMessage(` { "b" : 1.50 , "a" : [ 1 , 2 ] , "b" : "\u00e9" , "\u0063" : null } `)
	var got []string
	for name, v := range Members(obj) {
		got = append(got, name+"="+string(v))
	}
	want := `b="\u00e9"|a=[ 1 , 2 ]|c=null`
	if strings.Join(got, "|") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	many := []byte(`{"a":0`)
	for i := range 3 * fewMembers {
		many = fmt.Appendf(many, `,"m%d":%d`, i%(2*fewMembers), i)
	}
	got = got[:0]
	for name, v := range Members(append(many, `,"\u0061":1}`...)) {
		got = append(got, name+"="+string(v))
	}
	if n := len(got); n != 2*fewMembers+1 || got[0] != "a=1" || got[1] != "m0=32" || got[n-1] != "m31=31" {
		t.Errorf("of many: %v", got)
	}
	if v := Lookup(obj, "b"); string(v) != `"\u00e9"` {
		t.Errorf("of a name that stands twice the last one counts, got %s", v)
	}
	if v := Without(obj, "b"); string(v) != `{"a":[ 1 , 2 ],"c":null}` {
		t.Errorf("without b: %s", v)
	}
}

// FuzzCheck holds the scanner against encoding/json. Invariants: both agree on what is JSON (but for
// UTF-8, which only the scanner demands, and depth), and a checked object's members, put together
// again, are the same value.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":[1,2,{"b":"\ud83d\ude00"}]}`, `[1e5,-0.1,true,null,"x"]`, `"\\\""`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := Check(b)
		if !utf8.Valid(b) {
			if err == nil {
				t.Fatal("accepted text that is not UTF-8")
			}
			return
		}
		var m *MalformedError
		if errors.As(err, &m) && m.Rule == RuleTooDeep {
			return
		}
		if valid := json.Valid(b); valid != (err == nil) {
			t.Fatalf("encoding/json says %v, the scanner %v", valid, err)
		}
		if err != nil || !IsObject(bytes.TrimSpace(b)) {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		for name, v := range Members(b) {
			if got[name] != nil {
				t.Fatalf("member %q twice", name)
			}
			got[name] = v
			if err := Check(v); err != nil {
				t.Fatalf("member %q: %v", name, err)
			}
			if last := Lookup(b, name); !bytes.Equal(v, last) {
				t.Fatalf("member %q is %s, looked up %s", name, v, last)
			}
		}
		for name := range got {
			if !utf8.ValidString(name) {
				return // encoding/json makes one of all that are not
			}
		}
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("encoding/json has %s, the scanner %s", want, got)
		}
	})
}
