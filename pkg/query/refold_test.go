package query

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// chainOf are three runs, one from the other, as rules of some version tell them: the second changes a message
// of the first, so that it is encoded relative to that one.
func chainOf(refolds int, says string) []*record.Run {
	first := run("t", "first", 1, msg("a", "user", says+" of the first"))
	second := child(first, "second", 2, record.ParentExplicit, msg("b", "assistant", says+" of the second"))
	third := child(second, "third", 3, record.ParentExplicit, msg("c", "assistant", "no word of the third changes"))
	for _, r := range []*record.Run{first, second, third} {
		if r.Refolds = refolds; r.Base != "" {
			r.BaseRefolds = refolds
		}
	}
	return []*record.Run{first, second, third}
}

// However far the index is with the records of a thread that was folded again, and in whichever order rows get
// there: a history is the one from before or the one from then on, or none for now.
func TestHistory_MixesNoRecordsOfAThreadThatIsFoldedAgain(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		f := newFixture(t)
		for _, r := range chainOf(0, "old") {
			f.put(r)
		}
		tags := map[string]string{}
		for written := range 4 {
			if written > 0 {
				f.put(chainOf(1, "new")[order[written-1]])
			}
			for _, id := range []string{"first", "second", "third"} {
				got := f.get("acme", "/v1/threads/t/runs/"+id+"/history")
				before, since := strings.Contains(got.body, "old of"), strings.Contains(got.body, "new of")
				switch {
				case got.status == http.StatusServiceUnavailable && written%3 != 0: // the index is behind
				case got.status != http.StatusOK || before == since:
					t.Errorf("order %v, %d written: history of %s is %d %s", order, written, id, got.status, got.body)
				case written == 3 && before:
					t.Errorf("order %v, all written: history of %s is %s", order, id, got.body)
				}
				// Whoever has kept a history learns that there is another one.
				if tag := got.header.Get("ETag"); got.status == http.StatusOK {
					if was := tags[tag]; was != "" && was != fmt.Sprint(id, since) {
						t.Errorf("order %v, %d written: the tag %s of %s was that of %s", order, written, tag, id, was)
					}
					tags[tag] = fmt.Sprint(id, since)
				}
			}
		}
		var a struct{ Refolds int }
		if f.json("/v1/threads/t/runs/third", &a); a.Refolds != 1 {
			t.Errorf("the third run was told anew %d times", a.Refolds)
		}
	}
}

// foldedBetween writes the thread anew between the rows' reading and the contents'.
type foldedBetween struct {
	store.Reader
	f    **fixture
	done *bool
}

func (b foldedBetween) Contents(ctx context.Context, tenant, thread string, runs []store.Run) (map[string]store.Content, error) {
	if !*b.done {
		*b.done = true
		for _, r := range chainOf(1, "new") {
			(*b.f).put(r)
		}
	}
	return b.Reader.Contents(ctx, tenant, thread, runs)
}

func TestHistory_ReadsRowsAgainWhereContentsAreOfAnotherRecord(t *testing.T) {
	var f *fixture
	done := false
	f = newPatientFixture(t, func(r store.Reader) store.Reader { return foldedBetween{r, &f, &done} })
	for _, r := range chainOf(0, "old") {
		f.put(r)
	}
	tag := f.get("acme", "/v1/threads/t/runs/third/history").header.Get("ETag")
	again := f.get("acme", "/v1/threads/t/runs/third/history")
	if !done || tag == "" || tag != again.header.Get("ETag") || strings.Contains(again.body, "old") {
		t.Errorf("the tag is %s, then %s with %s", tag, again.header.Get("ETag"), again.body)
	}
}
