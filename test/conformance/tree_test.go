package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
	"github.com/skeinhq/skein/test/conformance"
)

// tree is a random thread in the making: what is sent to Skein, and what the official client holds at
// the end of each run, played along that run's chain alone.
type tree struct {
	gen
	client  *conformance.Client
	sources []partition.Source
	runs    []*treeRun
	ended   []*treeRun // by their ends
	// hidden says that no run names its parent.
	hidden bool
	ways   map[string]int
}

type treeRun struct {
	id     string
	parent *treeRun // nil for a root
	way    string
	events []json.RawMessage // those still to be sent
	beside bool              // another run was open when it started
	want   lineage.History
	own    bool // its message ids are no other run's
	astray bool // Skein's chain is another one
	// rewrote holds what the record may say of the input: nil where it goes on from the parent's history.
	rewrote []string
}

// The ways in which a run comes to be.
var treeWays = []string{"continue", "continue", "edit", "regenerate", "rewrite", "no input"}

func (tr *tree) begin() {
	r := &treeRun{id: fmt.Sprint("run", len(tr.runs)), way: "root", own: tr.hidden || tr.chance(60)}
	var held lineage.History // by the client, before the run
	if len(tr.ended) > 0 && tr.chance(90) {
		r.way = pick(tr.gen, treeWays)
		r.parent = pick(tr.gen, tr.ended)
		if r.way == "no input" && tr.hidden {
			r.parent = tr.ended[len(tr.ended)-1]
		}
		held = r.parent.want
	}
	asked := tr.decode(fmt.Sprintf(`[{"id":"u%d","role":"user","content":"question %d"}]`, len(tr.runs), len(tr.runs)))
	messages := lineage.InputMessages(held.Messages)
	at := tr.n(len(messages))
	switch r.way {
	case "root", "continue":
		messages = slices.Concat(messages, asked)
	case "edit": // and all behind it is gone
		if at < len(messages) {
			r.rewrote = []string{"rewound", "replaced"}
		}
		messages = slices.Concat(messages[:at], asked)
	case "regenerate":
		if 0 < at && at < len(messages) {
			r.rewrote = []string{"rewound"}
		}
		messages = messages[:at]
	case "rewrite": // the front is left out, and a message is another one
		if at > 0 {
			r.rewrote = []string{"trimmed", "replaced"}
		}
		messages = slices.Concat(messages[at:], asked)
		if i := tr.n(len(messages) - 1); messages[i].Role == agui.RoleUser {
			messages[i] = tr.decode(fmt.Sprintf(`[{"id":%s,"role":"user","content":"rewritten"}]`, agui.AppendString(nil, messages[i].ID)))[0]
		}
	}
	started := obj{"type": "RUN_STARTED", "threadId": "t", "runId": r.id}
	input := obj{"threadId": "t", "runId": r.id, "messages": list(messages), "tools": []any{}, "context": []any{}}
	if tr.chance(50) {
		input["state"] = tr.state()
	}
	if r.parent != nil && !tr.hidden {
		pick(tr.gen, []obj{started, input})["parentRunId"] = r.parent.id
		if r.way == "no input" {
			started["parentRunId"] = r.parent.id
		}
	}
	from := lineage.StartHistory(lineage.ParentExplicit, held, nil)
	if r.way != "no input" && !(r.way == "root" && !tr.chance(80)) {
		text := encode(input)
		decoded, err := agui.DecodeInput(text, "")
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.send(record.KindInput, r.id, text)
		from = lineage.StartHistory(lineage.ParentExplicit, held, decoded)
		if r.way == "continue" { // the client's own list, as it stands
			from.Messages = slices.Concat(held.Messages, asked)
		}
	} else {
		r.way = "no input"
	}
	start := conformance.Start{Messages: encode(list(from.Messages)), State: from.State}
	played := comparison{tr.t, tr.client}.run(r.id, from, start, append([]json.RawMessage{encode(started)}, tr.rest(r.id, from, r.own)...))
	r.events = played.events
	r.want = lineage.History{Messages: tr.decode(string(played.want.Messages)), State: played.want.State}
	tr.ways[r.way]++
	tr.runs = append(tr.runs, r)
}

// rest is what a generated run sends behind its RUN_STARTED, with an end. Own says that its ids are of no other run.
func (g gen) rest(run string, start lineage.History, own bool) []json.RawMessage {
	if own {
		g.own = run
	}
	events := slices.DeleteFunc(g.drawStream(run, start).events, func(e json.RawMessage) bool { return says(e, string(agui.RunStarted)) })
	return append(events, encode(obj{"type": "RUN_FINISHED", "threadId": "t", "runId": run}))
}

// unique reports whether no id stands twice.
func unique(messages []agui.Message) bool {
	ids := map[string]bool{}
	for _, m := range messages {
		ids[m.ID] = true
	}
	return len(ids) == len(messages)
}

func (tr *tree) send(kind record.Kind, run string, value json.RawMessage) {
	tr.sources = append(tr.sources, partition.Source{
		Headers: record.Headers{Kind: kind, RunID: run, Seq: -1}, Value: value, At: time.Unix(1_790_000_000, 0),
	})
}

func (tr *tree) decode(messages string) []agui.Message {
	var out []agui.Message
	if err := json.Unmarshal([]byte(messages), &out); err != nil {
		tr.t.Fatal(err)
	}
	return out
}

func list(messages []agui.Message) []agui.Message {
	if messages == nil {
		return []agui.Message{}
	}
	return messages
}

// play sends the runs, up to three at a time.
func (tr *tree) play(runs int) {
	var open []*treeRun
	for len(tr.runs) < runs || len(open) > 0 {
		if len(tr.runs) < runs && (len(open) == 0 || len(open) < 3 && len(tr.ended) > 0 && !tr.chance(85)) {
			tr.begin()
			open = append(open, tr.runs[len(tr.runs)-1])
			open[len(open)-1].beside = len(open) > 1
			tr.step(open[len(open)-1]) // its place is decided here
			continue
		}
		i := tr.n(len(open) - 1)
		if tr.step(open[i]) {
			tr.ended = append(tr.ended, open[i])
			open = slices.Delete(open, i, i+1)
		}
	}
}

// step sends a run's next event and reports whether it was its last one that counts.
func (tr *tree) step(r *treeRun) bool {
	last := len(cut(r.events)) == 1
	tr.send(record.KindEvent, r.id, r.events[0])
	r.events = r.events[1:]
	return last
}

// Random trees of runs, with edits, regenerations, rewrites, missing inputs and runs beside each other:
// every history that Skein's records give is what the official client holds when it plays that run's
// chain alone. With the parents hidden, each is found where the input determines it, and marked.
func TestTree_EveryHistoryEqualsTheOfficialClient(t *testing.T) {
	client := conformance.Need(t)
	fewerChecks(t, 20) // a tree is several runs, and its fold is a whole partition's
	ways, found, strays := map[string]int{}, map[lineage.ParentBy]int{}, 0
	rapid.Check(t, func(rt *rapid.T) {
		tr := &tree{gen: gen{t: rt, noOdd: true, plain: true}, client: client, hidden: rapid.Bool().Draw(rt, "hidden"), ways: ways}
		tr.play(rapid.IntRange(2, 9).Draw(rt, "runs"))
		records, _, err := partition.Offline(partition.DefaultConfig(), "acme", "t", tr.sources)
		if err != nil {
			rt.Fatal(err)
		}
		byID := map[string]*record.Run{}
		for _, r := range records {
			byID[r.RunID] = r
		}
		for _, r := range tr.runs {
			rec := byID[r.id]
			if rec == nil {
				rt.Fatalf("there is no record of %s", r.id)
			}
			found[lineage.ParentBy(rec.ParentBy)]++
			got, err := restore(byID, r.id)
			if err != nil {
				rt.Fatal(err)
			}
			// Another parent, marked, has other activity messages and another state; so do they
			// who go on from there. What else is said does not depend on it, where there was an input and the run's
			// ids are not those of such activities.
			r.astray = !tr.rightParent(r, byID) || r.parent != nil && r.parent.astray
			if r.astray {
				if r.way != "no input" && r.own {
					strays++
					is, want := encode(list(lineage.InputMessages(got.Messages))), encode(list(lineage.InputMessages(r.want.Messages)))
					if d := conformance.Diff(conformance.Conversation{Messages: want, State: got.State},
						conformance.Conversation{Messages: is, State: got.State}); d != "" {
						rt.Fatalf("%s (%s; parent %q, a guess): %s", r.id, r.way, rec.ParentRunID, d)
					}
				}
				continue
			}
			d := conformance.Diff(conformance.Conversation{Messages: encode(list(r.want.Messages)), State: r.want.State},
				conformance.Conversation{Messages: encode(list(got.Messages)), State: got.State})
			if d != "" {
				rt.Fatalf("%s (%s; parent %q): %s", r.id, r.way, rec.ParentRunID, d)
			}
			if r.parent != nil && !unique(r.parent.want.Messages) {
				continue // which of one id is another now cannot be said
			}
			said := slices.ContainsFunc(rec.Rewrote, func(kind string) bool { return slices.Contains(r.rewrote, kind) })
			if r.parent != nil && r.way != "rewrite" && len(r.rewrote) == 0 && rec.Rewrote != nil || len(r.rewrote) > 0 && !said {
				rt.Fatalf("%s (%s): the input rewrote %q, want one of %q", r.id, r.way, rec.Rewrote, r.rewrote)
			}
		}
	})
	t.Logf("runs by way: %v; parents: %v; with an input, and a parent found otherwise: %d", ways, found, strays)
}

// fewerChecks divides the number of generated cases for one test.
func fewerChecks(t *testing.T, by int) {
	t.Helper()
	was := flag.Lookup("rapid.checks").Value.String()
	n, err := strconv.Atoi(was)
	if err == nil {
		err = flag.Set("rapid.checks", strconv.Itoa(max(n/by, 20)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := flag.Set("rapid.checks", was); err != nil {
			t.Error(err)
		}
	})
}

// rightParent reports whether the record has the run's parent, and fails where it has not although
// that was said or determined, or where a guess is not marked.
func (tr *tree) rightParent(r *treeRun, records map[string]*record.Run) bool {
	rec := records[r.id]
	want := ""
	if r.parent != nil {
		want = r.parent.id
	}
	by := lineage.ParentBy(rec.ParentBy)
	switch {
	case r.parent != nil && !tr.hidden && (rec.ParentRunID != want || by != lineage.ParentExplicit):
		tr.t.Fatalf("%s names %s as its parent; the record has %q by %s", r.id, want, rec.ParentRunID, by)
	case rec.ParentRunID != "" && by != lineage.ParentExplicit && !by.Inferred():
		tr.t.Fatalf("%s: the parent %q is a guess and marked %q", r.id, rec.ParentRunID, by)
	case tr.hidden && r.way == "continue" && tr.determined(r, records) && rec.ParentRunID != want:
		tr.t.Fatalf("%s continues %s; the record has %q by %s", r.id, want, rec.ParentRunID, by)
	case tr.hidden && r.way == "no input" && r.parent != nil && rec.ParentRunID != want:
		tr.t.Fatalf("%s has no input, and %s ended last; the record has %q by %s", r.id, want, rec.ParentRunID, by)
	}
	return rec.ParentRunID == want
}

// determined reports whether the parent's history is that of no other run, so that an input that
// continues it names it. An empty one names nobody; and a run that is open may have had it then.
func (tr *tree) determined(r *treeRun, records map[string]*record.Run) bool {
	key := lineage.KeyOf(r.parent.want.Messages)
	if key.IsZero() || r.beside {
		return false
	}
	for id, rec := range records {
		if (id == r.parent.id) != (rec.HistoryKey == key.String()) {
			return false
		}
	}
	return true
}

func restore(records map[string]*record.Run, id string) (lineage.History, error) {
	return verify.NewRecords(slices.Collect(maps.Values(records))).History(id)
}
