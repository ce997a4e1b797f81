package lineage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
)

func TestPatch(t *testing.T) {
	tests := map[string]struct{ from, to, want string }{
		"the same":                       {`{"a":1}`, `{"a":1}`, `[]`},
		"the same in another order":      {`{"a":1,"b":2}`, ` { "b" : 2, "a":1 } `, `[]`},
		"the same string, escaped":       {`"\u0041"`, `"A"`, `[]`},
		"a member is added":              {`{}`, `{"a":null}`, `[{"op":"add","path":"/a","value":null}]`},
		"a member is removed":            {`{"a":1}`, `{}`, `[{"op":"remove","path":"/a"}]`},
		"a member is replaced":           {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, `[{"op":"replace","path":"/a/c","value":3}]`},
		"another type":                   {`{"a":{}}`, `{"a":[]}`, `[{"op":"replace","path":"/a","value":[]}]`},
		"a number written otherwise":     {`{"a":1}`, `{"a":1.0}`, `[{"op":"replace","path":"/a","value":1.0}]`},
		"a number beyond doubles":        {`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, `[{"op":"replace","path":"/a","value":12345678901234567891}]`},
		"names that pointers escape":     {`{"a/b":1,"~":1}`, `{"a/b":2}`, `[{"op":"remove","path":"/~0"},{"op":"replace","path":"/a~1b","value":2}]`},
		"an empty name":                  {`{"":1}`, `{"":2}`, `[{"op":"replace","path":"/","value":2}]`},
		"the last of equal names counts": {`{"a":1,"a":2}`, `{"a":2}`, `[]`},
		"appended to a list":             {`[1]`, `[1,2,3]`, `[{"op":"add","path":"/1","value":2},{"op":"add","path":"/2","value":3}]`},
		"put in front of a list":         {`[1,2]`, `[0,1,2]`, `[{"op":"add","path":"/0","value":0}]`},
		"taken out of a list":            {`[0,1,2,3]`, `[0,3]`, `[{"op":"remove","path":"/2"},{"op":"remove","path":"/1"}]`},
		"inside a list":                  {`[{"a":1},{"a":2},{"a":3}]`, `[{"a":1},{"a":5},{"a":3}]`, `[{"op":"replace","path":"/1/a","value":5}]`},
		"the root":                       {`{}`, `null`, `[{"op":"replace","path":"","value":null}]`},
		"a lone surrogate as a name":     {`{"o":{"\ud800":1}}`, `{"o":{"\ud801":1}}`, `[{"op":"replace","path":"/o","value":{"\ud801":1}}]`},
		"lone surrogates as values":      {`"\ud800"`, `"\ud801"`, `[{"op":"replace","path":"","value":"\ud801"}]`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Patch(json.RawMessage(tt.from), json.RawMessage(tt.to))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	for _, bad := range []string{``, `{`, `nul`, `1 2`, "\"\xff\""} {
		if _, err := Patch(json.RawMessage(`{}`), json.RawMessage(bad)); err == nil {
			t.Errorf("%q was compared", bad)
		}
		if _, err := Patch(json.RawMessage(bad), json.RawMessage(`{}`)); err == nil {
			t.Errorf("%q was compared", bad)
		}
	}
}

// Law: the patch turns the one value into the other, by the judgement of another implementation,
// and is empty exactly where they are the same.
func TestPatch_TurnsOneValueIntoTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := jsonValue(t, 4)
		to := jsonValue(t, 4)
		if rapid.Bool().Draw(t, "near") {
			to = mutate(t, from)
		}
		checkPatch(t, marshal(t, from), marshal(t, to))
	})
}

type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
}

func checkPatch(t fataler, from, to []byte) {
	t.Helper()
	p, err := Patch(from, to)
	if err != nil {
		t.Fatalf("Patch(%s, %s): %v", from, to, err)
	}
	if (string(p) == "[]") != reflect.DeepEqual(decoded(t, from), decoded(t, to)) {
		t.Fatalf("from %s to %s the patch is %s", from, to, p)
	}
	var ops []operation
	if err := json.Unmarshal(p, &ops); err != nil {
		t.Fatalf("the patch %s is no list of operations: %v", p, err)
	}
	// The library takes no whole document but an object or a list, and knows no member of an empty name within a path: TestPatch has those.
	for i := range ops {
		ops[i].Path = "/root" + ops[i].Path
		if strings.Contains(ops[i].Path+"/", "//") {
			return
		}
	}
	wrap := func(b []byte) []byte { return []byte(`{"root":` + string(b) + `}`) }
	library, err := jsonpatch.DecodePatch(marshal(t, ops))
	if err != nil {
		t.Fatalf("the patch %s is refused: %v", p, err)
	}
	got, err := library.Apply(wrap(from))
	if err != nil {
		t.Fatalf("from %s to %s the patch %s fails: %v", from, to, p, err)
	}
	if !reflect.DeepEqual(decoded(t, got), decoded(t, wrap(to))) {
		t.Fatalf("from %s to %s the patch %s gives %s", from, to, p, got)
	}
}

// operation is one of RFC 6902, as far as Patch makes them.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func decoded(t fataler, b []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decoding %s: %v", b, err)
	}
	return v
}

func marshal(t fataler, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encoding: %v", err)
	}
	return b
}

func jsonValue(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth == 0 {
		kind = min(kind, 5)
	}
	switch {
	case kind == 0:
		return nil
	case kind == 1:
		return rapid.Bool().Draw(t, "bool")
	case kind <= 3:
		return json.Number(rapid.SampledFrom([]string{"0", "1", "1.0", "-2", "1e3", "12345678901234567890"}).Draw(t, "number"))
	case kind <= 5:
		return rapid.SampledFrom([]string{"", "a", "b/c", "~1", "é\u2028", "<&>", "\x00\"\\"}).Draw(t, "string")
	case kind <= 7:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, "length"))
		for i := range list {
			list[i] = jsonValue(t, depth-1)
		}
		return list
	default:
		obj := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			obj[rapid.SampledFrom([]string{"a", "b", "", "a/b", "m~n", "~0", "0", "-", "ключ", "\"q\""}).Draw(t, "name")] = jsonValue(t, depth-1)
		}
		return obj
	}
}

// mutate changes a value in one place.
func mutate(t *rapid.T, v any) any {
	switch v := v.(type) {
	case []any:
		out := append([]any{}, v...)
		i := rapid.IntRange(0, len(out)).Draw(t, "index")
		switch {
		case i == len(out) || rapid.Bool().Draw(t, "insert"):
			return append(append(append([]any{}, out[:i]...), jsonValue(t, 1)), out[i:]...)
		case rapid.Bool().Draw(t, "delete"):
			return append(out[:i], out[i+1:]...)
		default:
			out[i] = mutate(t, out[i])
			return out
		}
	case map[string]any:
		out := map[string]any{}
		for name, m := range v {
			out[name] = m
		}
		name := rapid.SampledFrom([]string{"a", "b", "", "a/b", "m~n"}).Draw(t, "member")
		if old, ok := out[name]; ok && rapid.Bool().Draw(t, "inside") {
			out[name] = mutate(t, old)
		} else if ok {
			delete(out, name)
		} else {
			out[name] = jsonValue(t, 1)
		}
		return out
	default:
		return jsonValue(t, 2)
	}
}

// Invariants: Patch does not panic; what it accepts is JSON; the patch turns one value into the
// other (names with lone surrogates aside, which the other implementation cannot tell apart).
func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}]}`), []byte(`{"a":[{"b":2},1]}`))
	f.Add([]byte(`[]`), []byte(`"\ud83d\ude00"`))
	f.Fuzz(func(t *testing.T, from, to []byte) {
		if _, err := Patch(from, to); err != nil {
			return
		}
		if !json.Valid(from) || !json.Valid(to) {
			t.Fatalf("%q and %q were compared", from, to)
		}
		low := strings.ToLower(string(from) + string(to))
		if strings.Contains(low, `\ud`) || len(low) > 4096 {
			return
		}
		checkPatch(t, from, to)
	})
}

func TestDiff(t *testing.T) {
	a := History{Messages: msgs("u1 a1 u2 a2"), State: json.RawMessage(`{"n":1,"same":[1]}`)}
	b := History{Messages: msgs("u1:edited a1 u2b a2b"), State: json.RawMessage(`{"same":[1],"n":2}`)}
	d, err := Diff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s | %s | %d %s>%s %s | %v | %s", words(d.OnlyFrom), words(d.OnlyTo),
		len(d.Changed), d.Changed[0].ID, words([]agui.Message{d.Changed[0].To}), d.Changed[0].Patch, d.Reordered, d.StatePatch)
	want := `u2 a2 | u2b a2b | 1 u1>u1:edited [{"op":"replace","path":"/content","value":"edited"}] | false | [{"op":"replace","path":"/n","value":2}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if d.Empty() {
		t.Error("it says that nothing differs")
	}
	otherForm := slices.Clone(a.Messages)
	otherForm[0].Raw = json.RawMessage(`{ "role":"user", "content":"", "id":"\u00751" }`)
	for name, same := range map[string]History{"itself": a, "the same in another form": {Messages: otherForm, State: json.RawMessage(` {"same":[1], "n":1}`)}} {
		if d, err = Diff(a, same); err != nil || !d.Empty() {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if d, err = Diff(History{}, History{Messages: msgs("x x")}); err != nil || words(d.OnlyTo) != "x x" ||
		string(marshal(t, d.OnlyFrom)) != "[]" {
		t.Errorf("from nothing: %+v, %v", d, err)
	}
	if d, err = Diff(History{Messages: msgs("a b")}, History{Messages: msgs("b a")}); err != nil || !d.Reordered || d.Empty() {
		t.Errorf("in another order: %+v, %v", d, err)
	}
	if _, err = Diff(History{State: json.RawMessage(`{`)}, b); err == nil {
		t.Error("a state that is no JSON was compared")
	}
	if _, err = Diff(History{Messages: []agui.Message{{ID: "u1", Raw: json.RawMessage(`{`)}}}, b); err == nil {
		t.Error("a message that is no JSON was compared")
	}
}
