package query

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
)

// chain makes runs of acme's thread "chat" that go on from one another.
type chain struct {
	*rawFixture
	ends map[string]lineage.History
	recs map[string]*record.Run
}

func newChain(f *rawFixture) *chain {
	return &chain{f, map[string]lineage.History{}, map[string]*record.Run{}}
}

// run puts a run on the log and into the index: its input, where it has one, and its events.
func (c *chain) run(parent, id, input string, events ...string) *record.Run {
	c.t.Helper()
	var at []int64
	if input != "" {
		at = append(at, c.add("acme", "chat", record.Headers{Kind: record.KindInput, RunID: id, Seq: -1}, input))
	}
	for _, e := range events {
		at = append(at, c.event(id, e))
	}
	return c.index(parent, id, at...)
}

// index folds a run over what lies at these offsets.
func (c *chain) index(parent, id string, at ...int64) *record.Run {
	c.t.Helper()
	rec := &record.Run{
		Tenant: "acme", ThreadID: "chat", RunID: id, Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: id, RootRunID: id},
	}
	var from fold.Origin
	if p := c.recs[parent]; p != nil {
		rec.Lineage = record.Lineage{ParentRunID: parent, ParentBy: record.ParentExplicit, BranchID: p.BranchID, RootRunID: p.RootRunID,
			Depth: p.Depth + 1}
		from.Parent = c.ends[parent]
		if p.Status.Sealed() {
			rec.Base, from.Base = parent, c.ends[parent]
		}
	}
	rec, end := c.folded(rec, from, at...)
	c.ends[id], c.recs[id] = end, rec
	c.put(rec)
	return rec
}

type changesReply struct {
	RunID, Next, MessageID string
	Path                   *string
	Before                 json.RawMessage
	Changes                []changeReply
	Unread                 []struct{ RunID, Reason string }
}

type changeReply struct {
	RunID          string
	N              *int
	Position, Type string
	Op             string
	Before, After  json.RawMessage
	Path, Text     string
}

// String says what a change says, briefly.
func (r changeReply) String() string {
	at := "whole"
	if r.N != nil {
		at = fmt.Sprint(*r.N)
	}
	return strings.TrimSpace(strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s>%s %s%s", r.RunID, at, r.Type, r.Op, r.Before, r.After, r.Path, r.Text)), " "))
}

func (f *rawFixture) changes(path string) changesReply {
	f.t.Helper()
	var r changesReply
	described(f.t, "Changes", f.json("/v1/threads/chat"+path, &r).body)
	return r
}

// briefly are the changes as texts.
func (r changesReply) briefly() []string {
	var all []string
	for _, c := range r.Changes {
		all = append(all, c.String())
	}
	return all
}

// shop is a thread: root, quiet, which changes nothing that is asked for, edited and other, which both go on from that.
func shop(f *rawFixture) *chain {
	c := newChain(f)
	c.run("", "root", `{"threadId":"chat","runId":"root","messages":[{"id":"u","role":"user","content":"Hi"}],"state":{"cart":{"total":0}}}`,
		fmt.Sprintf(started, "root"),
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"Hello"}`,
		`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/cart/total","value":3}]}`,
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":", you."}`,
		`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/seen","value":true}]}`,
		fmt.Sprintf(finished, "root"))
	c.run("root", "quiet", `{"threadId":"chat","runId":"quiet","messages":[{"id":"u","role":"user","content":"Hi"},{"id":"a","role":"assistant","content":"Hello, you."},{"id":"u2","role":"user","content":"More"}]}`,
		fmt.Sprintf(started, "quiet"), fmt.Sprintf(finished, "quiet"))
	c.run("quiet", "other", "", fmt.Sprintf(started, "other"),
		`{"type":"STATE_SNAPSHOT","snapshot":{"cart":{"total":99}}}`, fmt.Sprintf(finished, "other"))
	c.run("quiet", "edited", `{"threadId":"chat","runId":"edited","messages":[{"id":"u","role":"user","content":"Hi"},{"id":"a","role":"assistant","content":"Hello!"}],"state":{"cart":{"total":4}}}`,
		fmt.Sprintf(started, "edited"),
		`{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/cart"}]}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":"Hi"}]}`,
		fmt.Sprintf(finished, "edited"))
	return c
}

func TestChanges_AreThoseOfAPlaceAlongTheChain(t *testing.T) {
	onBothLogs(t, func(f *rawFixture) {
		shop(f)
		for path, want := range map[string][]string{
			"/runs/edited/changes?path=/cart/total": {"root 0 add >0", "root 3 STATE_DELTA replace 0>3", "edited 0 replace 3>4",
				"edited 2 STATE_DELTA remove 4>"},
			"/changes?path=/cart/total": {"root 0 add >0", "root 3 STATE_DELTA replace 0>3", "edited 0 replace 3>4",
				"edited 2 STATE_DELTA remove 4>"},
			"/runs/other/changes?path=/cart/total": {"root 0 add >0", "root 3 STATE_DELTA replace 0>3", "other 2 STATE_SNAPSHOT replace 3>99"},
			"/runs/quiet/changes?path=/seen":       {"root 5 STATE_DELTA add >true"},
			"/runs/edited/changes?path=/nothing":   nil,
			"/runs/root/changes?atLeast=3:1":       {`root 0 replace {}>{"cart":{"total":0}}`, `root 3 STATE_DELTA replace {"cart":{"total":0}}>{"cart":{"total":3}}`, `root 5 STATE_DELTA replace {"cart":{"total":3}}>{"cart":{"total":3},"seen":true}`},
			"/runs/edited/changes?message=a": {
				`root 2 TEXT_MESSAGE_CHUNK add >{"id":"a","role":"assistant","content":"Hello"}`, "root 4 TEXT_MESSAGE_CHUNK append > /content, you.",
				`edited 0 replace {"id":"a","role":"assistant","content":"Hello, you."}>{"id":"a","role":"assistant","content":"Hello!"}`,
				`edited 3 MESSAGES_SNAPSHOT remove {"id":"a","role":"assistant","content":"Hello!"}>`,
			},
			"/runs/edited/changes?message=u2": {`quiet 0 add >{"id":"u2","role":"user","content":"More"}`, `edited 0 remove {"id":"u2","role":"user","content":"More"}>`},
		} {
			whole := f.changes(path)
			if got := whole.briefly(); !slices.Equal(got, want) {
				t.Errorf("%s: got %q\nwant %q", path, got, want)
			}
			for _, c := range whole.Changes {
				if c.N != nil && c.Position == "" {
					t.Errorf("%s: %s has no position", path, c)
				}
			}
			var paged []changeReply
			for next, more := "", true; more; more = next != "" {
				q := path + "&limit=1"
				if next != "" {
					q += "&from=" + url.QueryEscape(next)
				}
				r := f.changes(q)
				if len(r.Changes) > 1 || len(r.Changes) > 0 && string(r.Before) != string(r.Changes[0].Before) && r.Changes[0].Op != "append" {
					t.Errorf("%s: a page has %+v behind %s", q, r.Changes, r.Before)
				}
				paged, next = append(paged, r.Changes...), r.Next
			}
			if !reflect.DeepEqual(paged, whole.Changes) && len(paged)+len(whole.Changes) > 0 {
				t.Errorf("%s: paged %v, whole %v", path, paged, whole.Changes)
			}
		}
	})
}

// What a parent does behind the start of its child is not in the child's history.
func TestChanges_LeaveAParentWhereItsChildBegan(t *testing.T) {
	f := newRawFixture(t)
	c := newChain(f)
	at := []int64{f.event("p", fmt.Sprintf(started, "p")), f.event("p", `{"type":"STATE_SNAPSHOT","snapshot":{"x":1}}`)}
	c.index("", "p", at...)
	child := []int64{f.event("c", `{"type":"RUN_STARTED","threadId":"chat","runId":"c","parentRunId":"p"}`)}
	at = append(at, f.event("p", `{"type":"STATE_SNAPSHOT","snapshot":{"x":2}}`), f.event("p", fmt.Sprintf(finished, "p")))
	child = append(child, f.event("c", `{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/x","value":3}]}`), f.event("c", fmt.Sprintf(finished, "c")))
	c.index("p", "c", child...)
	c.index("", "p", at...)
	for run, want := range map[string][]string{
		"c": {"p 2 STATE_SNAPSHOT add >1", "c 2 STATE_DELTA replace 1>3"},
		"p": {"p 2 STATE_SNAPSHOT add >1", "p 3 STATE_SNAPSHOT replace 1>2"},
	} {
		if got := f.changes("/runs/" + run + "/changes?path=/x").briefly(); !slices.Equal(got, want) {
			t.Errorf("of %s: got %q, want %q", run, got, want)
		}
	}
}

func TestChanges_TellARunAsAWholeWhoseEventsAreGone(t *testing.T) {
	f := newRawFixture(t)
	c := shop(f)
	if err := f.cluster.Fake.DeleteRecords(f.cluster.Config.Topics().Events, 3, c.recs["quiet"].Raw.First+1); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"/runs/edited/changes?path=/cart/total": {"root whole add >3", "edited 0 replace 3>4", "edited 2 STATE_DELTA remove 4>"},
		"/runs/quiet/changes?message=u2":        {`quiet whole add >{"id":"u2","role":"user","content":"More"}`},
	} {
		r := f.changes(path)
		if got := r.briefly(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q\nwant %q", path, got, want)
		}
		if len(r.Unread) == 0 || r.Unread[0].RunID != "root" || !strings.Contains(r.Unread[0].Reason, "gone") {
			t.Errorf("%s: unread are %+v", path, r.Unread)
		}
	}
}

// Many changes, and many events, make many pages.
func TestChanges_EndAPageThatIsLong(t *testing.T) {
	f := newRawFixture(t)
	at := []int64{f.event("r", fmt.Sprintf(started, "r"))}
	for i := range 12 {
		at = append(at, f.event("r", fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"n":%d,"x":%q}}`, i, strings.Repeat("x", 300_000))))
	}
	f.indexed("r", "", at...)
	var first, second changesReply
	f.json("/v1/threads/chat/changes?path=", &first)
	f.json("/v1/threads/chat/changes?path=&from="+first.Next, &second)
	if len(first.Changes)+len(second.Changes) != 12 || first.Next == "" || second.Next != "" || len(first.Changes) < 5 {
		t.Errorf("pages of %d and %d changes, next %q and %q", len(first.Changes), len(second.Changes), first.Next, second.Next)
	}
	if string(second.Before) != string(first.Changes[len(first.Changes)-1].After) {
		t.Error("the second page begins with another value")
	}
}

func TestChanges_SayWhatIsWrong(t *testing.T) {
	f := newRawFixture(t)
	shop(f)
	for query, want := range map[string]struct {
		status int
		says   string
	}{
		"?path=/x&message=a":     {400, "give either path"},
		"?path=x":                {400, "such as /cart/total"},
		"?path=/a~2":             {400, "~ is ~0"},
		"?path=/x&limit=0":       {400, "limit must be"},
		"?path=/x&from=3":        {400, "next of the page before"},
		"?path=/x&from=-1:root":  {400, "next of the page before"},
		"?path=/x&from=1:other":  {400, "not on the chain"},
		"?path=/x&from=100:root": {400, "whose steps end at 6"},
		"?path=/x&at=1":          {400, "unknown parameter"},
	} {
		if detail := f.get("acme", "/v1/threads/chat/runs/edited/changes"+query).problem(t, want.status); !strings.Contains(detail, want.says) {
			t.Errorf("%s: %s, want %q", query, detail, want.says)
		}
	}
	f.get("acme", "/v1/threads/chat/runs/nobody/changes?path=/x").problem(t, http.StatusNotFound)
	f.get("umbrella", "/v1/threads/chat/runs/edited/changes?path=/x").problem(t, http.StatusNotFound)
}

// A change is a few bytes of a large state or message: it must not keep all of that, so it has bytes of its own.
func TestBlame_HoldsNoMoreThanItSays(t *testing.T) {
	for name, c := range map[string]struct {
		place               timeline.Place
		before, after, want string
	}{
		"a place in the state":  {timeline.Place{}, `{"n":1}`, `{"n":2}`, `replace {"n":1}>{"n":2} `},
		"a text that has grown": {timeline.MessagePlace("a"), `{"id":"a","content":"one"}`, `{"id":"a","content":"one two"}`, `append > /content" two"`},
	} {
		t.Run(name, func(t *testing.T) {
			b := blame{place: c.place}
			before, after := []byte(c.before), []byte(c.after)
			b.append(placeChange{}, before, after)
			clear(before)
			clear(after)
			if got := b.a.Changes[0]; fmt.Sprintf("%s %s>%s %s%s", got.Op, got.Before, got.After, got.Path, got.Text) != c.want {
				t.Errorf("once what it was cut from is gone, it says %s %s>%s %s%s, want %s", got.Op, got.Before, got.After, got.Path, got.Text, c.want)
			}
		})
	}
}
