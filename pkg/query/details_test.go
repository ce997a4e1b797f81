package query

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// detailed indexes a detail of a thread.
func (f *fixture) detailed(thread, name, value string) {
	f.t.Helper()
	f.version++
	e := store.Entry{Partition: 3, Version: f.version, Tenant: "acme", ThreadID: thread, Detail: &record.Detail{Name: name, Value: value}}
	if err := f.store.Write(f.t.Context(), []store.Entry{e}); err != nil {
		f.t.Fatal(err)
	}
}

// indexedBelow says that everything below an offset of partition 3 is indexed.
func (f *fixture) indexedBelow(offset int64) {
	f.t.Helper()
	f.version++
	e := store.Entry{Partition: 3, Version: f.version, Position: &store.Position{Next: offset}}
	if err := f.store.Write(f.t.Context(), []store.Entry{e}); err != nil {
		f.t.Fatal(err)
	}
}

func TestThreads_HaveTitlesAndAreArchived(t *testing.T) {
	f := newFixture(t)
	for _, thread := range []string{"a", "b", "c"} {
		f.put(run(thread, "r", 3))
	}
	f.detailed("a", record.DetailTitle, "Trip to Oslo")
	f.detailed("b", record.DetailTitle, "Oslo again")
	f.detailed("b", record.DetailArchived, "true")
	f.detailed("never", record.DetailTitle, "Oslo without a run")
	for query, want := range map[string]string{
		"": `a "Trip to Oslo" false, c "" false`, "?archived=no": `a "Trip to Oslo" false, c "" false`,
		"?archived=yes": `b "Oslo again" true`, "?archived=all": `a "Trip to Oslo" false, b "Oslo again" true, c "" false`,
		"?title=oslo": `a "Trip to Oslo" false`, "?title=OSLO+trip": `a "Trip to Oslo" false`, "?title=bergen": "",
		"?title=oslo&archived=all": `a "Trip to Oslo" false, b "Oslo again" true`,
	} {
		r := f.get("acme", "/v1/threads"+query)
		var page struct{ Threads []store.Thread }
		if err := json.Unmarshal([]byte(r.body), &page); err != nil || r.status != 200 {
			t.Fatalf("%s: %d %s", query, r.status, r.body)
		}
		var got []string
		for _, th := range page.Threads {
			got = append(got, fmt.Sprintf("%s %q %v", th.ThreadID, th.Title, th.Archived))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if r := f.get("acme", "/v1/threads/b"); r.status != 200 || !strings.Contains(r.body, `"title":"Oslo again","archived":true`) {
		t.Errorf("an archived thread: %d %s", r.status, r.body)
	}
	if r := f.get("acme", "/v1/threads/c"); strings.Contains(r.body, "title") || strings.Contains(r.body, "archived") {
		t.Errorf("a thread without details: %s", r.body)
	}
	f.get("acme", "/v1/threads/never").problem(t, 404)
	for _, query := range []string{"archived=maybe", "title=+", "title=" + strings.Repeat("x+", 33)} {
		if p := f.get("acme", "/v1/threads?"+query).problem(t, 400); !strings.Contains(p, "archived") && !strings.Contains(p, "title") {
			t.Errorf("%s: %s", query, p)
		}
	}
}

// A read of a thread waits for the patches that the log has, and reads of runs do not.
func TestFresh_WaitsForThePatchesOfAThread(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("an open run %v", open), func(t *testing.T) {
			f := newOpenFixture(t)
			f.service.cfg.Wait = shortWait
			if !open {
				f.indexedFor("acme", f.thread, "r", "", nil, 0, f.event("r", fmt.Sprintf(finished, "r")))
			}
			at := f.add("acme", f.thread, record.Headers{Kind: record.KindThread, Seq: -1}, `{"title":"Trip to Oslo"}`)
			f.produce()
			f.indexedBelow(at)
			if r := f.get("acme", f.path); r.status != 200 || r.header.Get(headerRemarks) != remarkBehind {
				t.Errorf("before the title is indexed: %d %s, remarks %q", r.status, r.body, r.header.Get(headerRemarks))
			}
			for _, path := range []string{"/runs/r", "/history", "/lineage"} {
				if r := f.get("acme", f.path+path); r.status != 200 || r.header.Get(headerRemarks) != "" {
					t.Errorf("%s: %d %s, remarks %q", path, r.status, r.body, r.header.Get(headerRemarks))
				}
			}
			atLeast := fmt.Sprintf("?atLeast=3:%d", at)
			if r := f.get("acme", f.path+atLeast); r.status != 425 {
				t.Errorf("at least at the patch, before it is indexed: %d %s", r.status, r.body)
			}
			f.detailed(f.thread, record.DetailTitle, "Trip to Oslo")
			f.indexedBelow(at + 1)
			for _, query := range []string{"", atLeast} {
				r := f.get("acme", f.path+query)
				if r.status != 200 || r.header.Get(headerRemarks) != "" || !strings.Contains(r.body, `"title":"Trip to Oslo"`) {
					t.Errorf("%s: %d %s, remarks %q", query, r.status, r.body, r.header.Get(headerRemarks))
				}
			}
		})
	}
}

// The title of an erased thread is not that of the thread that came after it.
func TestFresh_ShowsNoTitleFromBelowAnErasure(t *testing.T) {
	f := newOpenFixture(t)
	f.service.cfg.Wait = shortWait
	f.detailed(f.thread, record.DetailTitle, "secret")
	f.add("acme", f.thread, record.Headers{Kind: record.KindErase, Seq: -1}, "{}")
	second := []int64{f.event("s", fmt.Sprintf(started, "s")), f.event("s", fmt.Sprintf(finished, "s"))}
	f.produce()
	if r := f.get("acme", f.path); strings.Contains(r.body, "secret") {
		t.Errorf("%d %s", r.status, r.body)
	}
	f.detailed(f.thread, record.DetailTitle, "")
	f.indexedFor("acme", f.thread, "s", "", nil, second...)
	f.detailed(f.thread, record.DetailTitle, "the new one")
	if r := f.get("acme", f.path); !strings.Contains(r.body, "the new one") || r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}
