package timeline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
)

// watched walks a run and says at which steps a place changed, and what it was from then on.
func watched(t *testing.T, r *Reader, p Place) []string {
	t.Helper()
	c, err := r.From(t.Context(), nil, -1, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := c.Watch(p)
	var all []string
	value := string(w.Value())
	for range r.Len() + 1 {
		s, before, changed, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !changed {
			continue
		}
		if string(before) != value {
			t.Fatalf("step %d changes %s, which was %s", s.N, before, value)
		}
		value = string(w.Value())
		all = append(all, fmt.Sprint(s.N, " ", value))
	}
	return all
}

// compared is watched by a look at the place behind every step.
func compared(t *testing.T, r *Reader, p Place) []string {
	t.Helper()
	c, err := r.From(t.Context(), nil, -1, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := p.Of(c.History())
	var all []string
	for range r.Len() + 1 {
		s, _, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		after := p.Of(c.History())
		if (before == nil) != (after == nil) || before != nil && !sameJSON(t, before, after) {
			all = append(all, fmt.Sprint(s.N, " ", string(after)))
		}
		before = after
	}
	return all
}

func place(t *testing.T, pointer string) Place {
	t.Helper()
	p, err := StatePlace(pointer)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWatch_SaysWhatALookBehindEveryStepDoes(t *testing.T) {
	for _, th := range recordings.All() {
		t.Run(th.String(), func(t *testing.T) {
			t.Parallel()
			made := newThread(t)
			made.blind = true
			made.record(th)
			for _, run := range th.Runs {
				r := made.read(run.RunID, 64<<20)
				end, err := r.From(t.Context(), nil, r.Len(), nil)
				if err != nil {
					t.Fatal(err)
				}
				places := []Place{place(t, "")}
				for name := range agui.Members(end.History().State) {
					places = append(places, place(t, "/"+agui.EscapePointer.Replace(name)))
				}
				for _, m := range end.History().Messages {
					places = append(places, MessagePlace(m.ID))
				}
				for _, p := range places {
					if got, want := watched(t, r, p), compared(t, r, p); !slices.Equal(got, want) {
						t.Errorf("%s, %+v: got %q, want %q", run.RunID, p, got, want)
					}
				}
			}
		})
	}
}

func TestWatch_FollowsAPlaceInTheState(t *testing.T) {
	th := newThread(t)
	th.run("r", "")
	th.add("r", "input", `{"threadId":"t","runId":"r","messages":[],"state":{"list":[{"n":1},{"n":2}],"a/b":{"~":1},"x":0}}`)
	th.event("r", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
	for _, ops := range []string{
		`{"op":"add","path":"/list/0","value":{"n":0}}`,                                             // 2: the elements move
		`{"op":"replace","path":"/list/1/n","value":5}`,                                             // 3
		`{"op":"replace","path":"/x","value":1}`,                                                    // 4: elsewhere
		`{"op":"remove","path":"/list/7"}`,                                                          // 5: fails
		`{"op":"move","from":"/list/1","path":"/list/0"}`,                                           // 6
		`{"op":"replace","path":"/a~1b/~0","value":2}`,                                              // 7
		`{"op":"copy","from":"/list/0","path":"/y"}`,                                                // 8
		`{"op":"replace","path":"","value":{"x":1,"a/b":{"~":2},"list":[{"n":5},{"n":0},{"n":2}]}}`, // 9: the same, in another order
		`{"op":"remove","path":"/list"}`,                                                            // 10
		`{"op":"add","path":"/list","value":"text"}`,                                                // 11
	} {
		th.event("r", `{"type":"STATE_DELTA","delta":[`+ops+`]}`)
	}
	th.event("r", `{"type":"STATE_SNAPSHOT","snapshot":{"list":[null,{"n":null}]}}`) // 12
	r := th.read("r", 1<<20)
	for pointer, want := range map[string][]string{
		"/list/1/n": {"0 2", "2 1", "3 5", "6 0", "10 ", "12 null"},
		"/list/0":   {`0 {"n":1}`, `2 {"n":0}`, `6 {"n":5}`, "10 ", "12 null"},
		"/list/01":  nil,
		"/list/-":   nil,
		"/a~1b/~0":  {"0 1", "7 2", "12 "},
		"/x":        {"0 0", "4 1", "12 "},
		"/nothing":  nil,
	} {
		if got := watched(t, r, place(t, pointer)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", pointer, got, want)
		}
		if got := compared(t, r, place(t, pointer)); !slices.Equal(got, want) {
			t.Errorf("%s: a look behind every step says %q", pointer, got)
		}
	}
	for _, pointer := range []string{"x", "/a~", "/a~2", " /x"} {
		if _, err := StatePlace(pointer); err == nil {
			t.Errorf("%q is taken for a pointer", pointer)
		}
	}
}
