package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/timeline"
)

// found returns the steps of run r that have a text, page by page; answers are held to their description.
func (f *rawFixture) found(text, more string) (found []int) {
	f.t.Helper()
	for from := 0; ; {
		var r struct {
			N, Total int
			Found    []int
			Next     *int
		}
		path := fmt.Sprintf("/v1/threads/chat/runs/r/state?find=%s&from=%d%s", url.QueryEscape(text), from, more)
		described(f.t, "FoundSteps", f.json(path, &r).body)
		found = append(found, r.Found...)
		if r.Next == nil {
			if r.N != r.Total {
				f.t.Errorf("%s: it ends at step %d of %d", path, r.N, r.Total)
			}
			return found
		}
		if *r.Next != r.N+1 {
			f.t.Fatalf("%s: next is %d after step %d", path, *r.Next, r.N)
		}
		from = *r.Next
	}
}

func TestFind_NamesTheStepsOfTheRunAlone(t *testing.T) {
	f := newRawFixture(t)
	f.talk()
	for text, want := range map[string][]int{
		"hi": {0}, "HELLO": {2}, "hello, you": {5}, "nonsense": {4}, "state_delta": {3},
		"text_message": {2, 5}, "only umbrella": nil, "nothing": nil,
	} {
		if got := f.found(text, ""); !slices.Equal(got, want) {
			t.Errorf("%q is in %v, want %v", text, got, want)
		}
	}
	if got := f.found("type", "&limit=1"); !slices.Equal(got, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("one a page: %v", got)
	}
	var r struct{ Found []int }
	if f.json("/v1/threads/chat/state?find=hello&from=3:3", &r); !slices.Equal(r.Found, []int{2}) {
		t.Errorf("from a position of the tip: %v", r.Found)
	}
	for query, status := range map[string]int{"find=x&at=2": 400,
		"find=" + strings.Repeat("x", 201): 400, "find=x&from=7": 404, "find=x&limit=0": 400} {
		f.get("acme", "/v1/threads/chat/runs/r/state?"+query).problem(t, status)
	}
	f.get("umbrella", "/v1/threads/chat/runs/r/state?find=hello").problem(t, http.StatusNotFound)
}

// A run whose events the cache does not hold is read in parts; a phrase may begin on the page before.
func TestFind_ReadsWhatTheTimelineDoesNotHold(t *testing.T) {
	f := newRawFixture(t)
	f.longRun(700)
	held := map[string][]int{}
	texts := []string{"word 52 ", "word 300 word 301", `"n":598}`, "word"}
	for _, text := range texts {
		held[text] = f.found(text, "&limit=3")
	}
	f.service.cache = newCache(480<<10, f.service.metrics)
	for _, text := range texts {
		if got := f.found(text, "&limit=3"); len(got) == 0 || !reflect.DeepEqual(got, held[text]) {
			t.Errorf("%q is in %v, want %v", text, got, held[text])
		}
	}
	reader := f.service.cache.byKey[cacheKey{"acme", "chat", "r"}].reader
	if reader.Step(5).Value != nil {
		t.Error("the timeline holds all events")
	}
	late := &call{Service: f.service, Call: &front.Call{R: httptest.NewRequest(http.MethodGet, "/", nil), Tenant: "acme"}, threadID: "chat",
		load: f.service.room.load("acme")}
	var page findAnswer
	row := store.Run{Run: record.Run{Raw: record.Raw{Partition: 3}}}
	if err := page.search(stepping{Reader: reader, c: late, row: row}, timeline.NewFinder("word"), 300, 1000, 0); err != nil || page.N != 300 {
		t.Errorf("a page without time ends at step %d, %v", page.N, err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	r, err := http.NewRequestWithContext(gone, http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &call{Service: f.service, Call: &front.Call{R: r}, load: f.service.room.load("acme")}
	var a findAnswer
	err = a.search(stepping{Reader: reader, c: c}, timeline.NewFinder("word"), 0, 1000, time.Minute)
	if !errors.Is(err, context.Canceled) || len(a.Found) > 0 {
		t.Errorf("with nobody who waits: %v, %v", err, a.Found)
	}
}
