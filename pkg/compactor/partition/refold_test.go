package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

// older has the records on skein.runs, and the snapshots, be those of older rules, by which texts and states
// came out otherwise; ids, and so places, are the same.
func (s *sim) older(from, to string) {
	s.tb.Helper()
	for i, m := range s.runs {
		if header(m, record.HeaderKind) == string(record.KindRun) && m.Value != nil {
			s.runs[i] = partitiontest.OlderRecord(s.tb, m, from, to)
		}
	}
	for i, m := range s.other {
		if m.Topic == s.Topics.Snapshots && m.Value != nil {
			old := *m
			old.Value = []byte(strings.ReplaceAll(string(m.Value), from, to))
			s.other[i] = &old
		}
	}
}

// answerRefold does what the session does with what may be a request.
func (s *sim) answerRefold(m *kgo.Record) {
	s.tb.Helper()
	r, err := s.part.BeginRefold(m, s.Now)
	s.check(err)
	if r == nil {
		return
	}
	s.refused = append(s.refused, r.Refused)
	if r.Refused != nil {
		return
	}
	var raw []*kgo.Record
	for _, span := range r.Ranges {
		for _, m := range s.Events[max(span.Start, s.rawStart):max(span.End, s.rawStart)] {
			if string(m.Key) == r.Key {
				raw = append(raw, m)
			}
		}
	}
	_, refused, err := s.part.FinishRefold(r, raw, s.rawStart)
	s.check(err)
	s.refused[len(s.refused)-1] = refused
}

// withoutRefolds are the latest records as if they had been made by the rules of this version at once.
func (s *sim) withoutRefolds() map[string]string {
	s.tb.Helper()
	out := s.values()
	for key, value := range out {
		r, err := record.DecodeRun([]byte(value))
		if err != nil {
			continue // a position, an erasure
		}
		r.FoldVersion, r.Refolds, r.BaseRefolds = compact.Version, 0, 0
		b, err := record.EncodeRun(r)
		s.check(err)
		out[key] = string(b)
	}
	return out
}

func TestPartition_WritesAThreadAnewWhereTheRulesMakeOtherRecords(t *testing.T) {
	s := newSim(t, nil)
	s.Chain()
	s.all()
	want := s.values()
	s.older("one", "eins")
	s.open(true)
	s.Turn("mid", "mmid") // from here on the history of the last of them is in memory
	s.all()
	before := len(s.runs)
	s.Refold("t")
	s.all()
	equal(t, "refused", s.refused, []error{nil})
	got := s.withoutRefolds()
	for key := range want {
		if key != record.ProgressKey {
			equal(t, "record "+key, got[key], want[key])
		}
	}
	messages, state := s.history("mid")
	equal(t, "snapshots", s.snapshotValues(), map[string]string{
		"acme/t/r1/MESSAGES_SNAPSHOT": `{"type":"MESSAGES_SNAPSHOT","messages":` + messages + `}`,
		"acme/t/r1/STATE_SNAPSHOT":    `{"type":"STATE_SNAPSHOT","snapshot":` + state + `}`,
	})
	// The second run says nothing otherwise, but it is based on the first.
	for run, refolds := range map[string][2]int{"r1": {1, 0}, "r2": {1, 1}, "r3": {1, 1}, "mid": {1, 1}} {
		r := s.run(run)
		equal(t, "refolds of "+run+" and its base", [2]int{r.Refolds, r.BaseRefolds}, refolds)
		equal(t, "version of "+run, r.FoldVersion, compact.Version)
	}
	equal(t, "records", len(s.runs)-before, 5) // and the position

	// What follows goes on from what is there by now, in this process and the next one.
	for i, again := range []bool{false, true} {
		if again {
			s.open(true)
		}
		run := fmt.Sprintf("next%d", i)
		s.Turn(run, "m"+run)
		s.all()
		equal(t, "base of "+run, s.run(run).BaseRefolds, 1-i)
		messages, state := s.history(run)
		if strings.Contains(messages+state, "eins") || !strings.Contains(messages, "one again") || !strings.Contains(state, `"r1":"one"`) {
			t.Errorf("history of %s: %s %s", run, messages, state)
		}
		for key, value := range s.snapshotValues() { // made from what was in memory, where records are encoded relative to a base
			if strings.Contains(value, "eins") {
				t.Errorf("%s at the end of %s is %s", key, run, value)
			}
		}
	}

	// Asked for once more, nothing is written but how far it is.
	before = len(s.runs)
	s.Refold("t")
	s.all()
	equal(t, "refused", s.refused, []error{nil, nil})
	equal(t, "records of a repeat", len(s.runs)-before, 1)
}

func TestPartition_LeavesAThreadAsItIsWhereARunIsOpen(t *testing.T) {
	s := newSim(t, nil)
	s.Chain()
	s.all()
	s.older("one", "eins")
	s.open(true)
	s.Send("t", "open", started("open"))
	s.Refold("t")
	s.Send("t", "open", finished("open"))
	before := s.values()["acme/t/r1"]
	s.all()
	equal(t, "refused", s.refused, []error{errThreadOpen})
	equal(t, "the first record", s.values()["acme/t/r1"], before)
	s.Refold("t")
	s.all()
	equal(t, "refused once it has ended", s.refused[1], nil)
	equal(t, "refolds of the run that was open", s.run("open").Refolds, 1)
	messages, _ := s.history("open")
	if strings.Contains(messages, "eins") {
		t.Errorf("its history is %s", messages)
	}
}

// What was decided about a request is decided: read again after a kill, it is not asked anew, whatever the thread has
// become meanwhile.
func TestPartition_DecidesARequestToFoldAgainOnce(t *testing.T) {
	for _, newFolder := range []bool{false, true} {
		s := newSim(t, nil)
		s.Send("u", "other", started("other")) // keeps the commit below the request
		s.Chain()
		s.all()
		s.older("one", "eins")
		s.open(true)
		s.Send("t", "open", started("open"))
		s.Refold("t")
		request := int64(len(s.Events) - 1)
		s.Send("t", "open", finished("open"))
		s.all()
		if s.committed.Committed >= request || s.committed.Processed <= request {
			t.Fatalf("the request at %d is not between C and P: %+v", request, s.committed)
		}
		s.open(newFolder)
		s.all()
		equal(t, "refused", s.refused, []error{errThreadOpen})
		equal(t, "refolds", s.run("r1").Refolds, 0)
	}
}

// A run that the request itself, being so much later, lets be abandoned: its record is of before that.
func TestPartition_LeavesAThreadAsItIsUntilAnAbandonmentIsCommitted(t *testing.T) {
	for _, hasRecord := range []bool{false, true} {
		s := newSim(t, nil)
		s.Chain()
		s.all()
		s.older("one", "eins")
		s.open(true)
		s.Send("t", "silent", started("silent"))
		s.all()
		if hasRecord {
			s.Now = s.Now.Add(s.cfg.CheckpointMax)
			s.commit(true)
		}
		s.Now = s.Now.Add(2 * s.cfg.IdleLimit)
		s.Refold("t")
		s.all()
		equal(t, "refused", s.refused, []error{errThreadOpen})
		s.Now = s.Now.Add(evictAfter)
		s.commit(true)
		s.Refold("t")
		s.all()
		equal(t, "refused once it is committed and has left memory", s.refused[1], nil)
		equal(t, "refolds", s.run("silent").Refolds, 1)
	}
}

// A record of a run that had ended says nothing of how to go on: where the run would not have ended by now, or would
// have where it may go on, its thread stays.
func TestPartition_LeavesAThreadWhoseRunsWouldEndOtherwise(t *testing.T) {
	for name, events := range map[string][]string{
		"would not have ended": {text("mx", "one"), custom("the-end")},
		"would have ended":     {text("mx", "one"), finished("x")},
	} {
		s := newSim(t, nil)
		s.Send("t", "x", started("x"))
		for _, event := range events {
			s.Send("t", "x", event)
		}
		s.all()
		s.Now = s.Now.Add(s.cfg.CheckpointMax)
		s.commit(true)
		for i, m := range s.runs {
			r, err := record.DecodeRun(m.Value)
			if err != nil || r.RunID != "x" {
				continue
			}
			r.FoldVersion, r.EndedAt = 0, &s.Now
			if r.Open != nil {
				r.Status, r.Open = record.StatusFinished, nil
			} else {
				r.Status, r.Synthetic, r.Open = record.StatusAbandoned, true, &record.Open{LastAt: s.Now}
			}
			old := *m
			old.Value, err = record.EncodeRun(r)
			s.check(err)
			s.runs[i] = &old
		}
		s.committed.Committed = s.committed.Processed
		s.open(true)
		before := s.values()["acme/t/x"]
		s.Refold("t")
		s.all()
		if len(s.refused) != 1 || s.refused[0] == nil || !strings.Contains(s.refused[0].Error(), `run "x" `+name) {
			t.Errorf("refused: %v, want %q", s.refused, name)
		}
		equal(t, "its record", s.values()["acme/t/x"], before)
	}
}

// An abandoned run may yet go on: what it goes on from is made anew as well.
func TestPartition_WritesAnAbandonedRunAnewAndLetsItGoOn(t *testing.T) {
	for _, refold := range []bool{false, true} {
		s := newSim(t, nil)
		s.Chain()
		s.Send("t", "silent", started("silent"))
		s.Send("t", "silent", text("ms", "one "))
		s.all()
		s.Now = s.Now.Add(2 * s.cfg.IdleLimit)
		s.Send("other", "x", started("x"))
		s.all()
		equal(t, "status", s.run("silent").Status, record.StatusAbandoned)
		if refold {
			s.older("one", "eins")
			s.open(true)
			s.Refold("t")
			s.all()
			equal(t, "refused", s.refused, []error{nil})
		}
		s.Send("t", "silent", text("ms", "and two"))
		s.Send("t", "silent", finished("silent"))
		s.all()
		messages, state := s.history("silent")
		equal(t, "messages", messages, `[`+assistantMessage("mr1", "one")+`,`+assistantMessage("mr2", "two")+`,`+
			assistantMessage("mr3", "one again")+`,`+assistantMessage("ms", "one and two")+`]`)
		equal(t, "state", state, `{"r1":"one","r2":"two","r3":"one again"}`)
		if refold {
			equal(t, "refolds", [2]int{s.run("silent").Refolds, s.run("silent").BaseRefolds}, [2]int{1, 1})
		}
	}
}

// Runs whose raw events are gone stay, and what is based on them is encoded relative to what they say.
func TestPartition_LeavesRunsWhoseRawEventsAreGone(t *testing.T) {
	s := newSim(t, nil)
	s.Chain()
	s.all()
	s.older("one", "eins")
	s.open(true)
	s.rawStart = 2 // in the middle of the first run
	s.Refold("t")
	s.all()
	equal(t, "refused", s.refused, []error{nil})
	equal(t, "refolds", []int{s.run("r1").Refolds, s.run("r2").Refolds, s.run("r3").Refolds, s.run("r3").BaseRefolds}, []int{0, 0, 1, 0})
	messages, state := s.history("r3")
	equal(t, "messages", messages, `[`+assistantMessage("mr1", "eins")+`,`+assistantMessage("mr2", "two")+`,`+assistantMessage("mr3", "one again")+`]`)
	equal(t, "state", state, `{"r1":"eins","r2":"two","r3":"one again"}`)
}

// Half of a chain is no history: where one run cannot be folded again that is based on one that changes, and
// where the raw events are not those of a record, all stays.
func TestPartition_WritesAThreadAnewAsAWholeOrNotAtAll(t *testing.T) {
	for name, spoil := range map[string]func(r *record.Run){
		"is based on one that changes, and cannot be folded again: its contents were cut":                    func(r *record.Run) { r.Truncated = true },
		"is based on one that changes, and cannot be folded again: events were gone before they were folded": func(r *record.Run) { r.RawLost = true },
		"the raw events of run \"r2\" are not those of its record, which differs in raw.sha256":              func(r *record.Run) { r.Raw.SHA256 = "other" },
		"the raw events of run \"r2\" are not those of its record, which differs in raw.events":              func(r *record.Run) { r.Raw.Events = 77 },
	} {
		s := newSim(t, nil)
		s.Chain()
		s.all()
		s.older("one", "eins")
		for i, m := range s.runs {
			if r, err := record.DecodeRun(m.Value); err == nil && r.RunID == "r2" {
				spoil(r)
				spoilt := *m
				spoilt.Value, err = record.EncodeRun(r)
				s.check(err)
				s.runs[i] = &spoilt
			}
		}
		s.open(true)
		before := s.values()
		s.Refold("t")
		s.all()
		if len(s.refused) != 1 || s.refused[0] == nil || !strings.Contains(s.refused[0].Error(), name) {
			t.Errorf("refused: %v, want %s", s.refused, name)
		}
		for key, value := range s.values() {
			if key != record.ProgressKey {
				equal(t, key, value, before[key])
			}
		}
	}
}

func TestPartition_RefusesToFoldAgainWhatIsTooLarge(t *testing.T) {
	s := newSim(t, nil)
	s.Chain()
	s.all()
	s.older("one", "x")
	s.cfg.RecordLimit = 600
	s.open(true)
	s.Refold("t")
	s.all()
	if len(s.refused) != 1 || s.refused[0] == nil || !strings.Contains(s.refused[0].Error(), errRecordLarge.Error()) {
		t.Errorf("refused: %v", s.refused)
	}
}

// A thread is held once, not once for each of its runs: what runs end with that only add to one another is one list, which
// was copied each time that it had to grow.
func TestThread_SharesWhatItsRunsHaveInCommon(t *testing.T) {
	const runs = 300
	s := newSim(t, nil)
	for i := range runs {
		run := fmt.Sprint("r", i)
		s.Send("t", run, started(run))
		s.Send("t", run, text("u"+run, "one"))
		s.Send("t", run, text("m"+run, "two"))
		s.Send("t", run, finished(run))
	}
	s.all()
	s.older("one", "eins")
	s.open(true)
	var records []*record.Run
	for _, r := range s.latest() {
		records = append(records, r)
	}
	again := verify.NewRewriter(records, 0)
	for _, m := range s.Events {
		s.check(takeRaw(again.Take, m))
	}
	anew, err := again.Rewrite()
	s.check(err)
	equal(t, "records anew", len(anew), runs)
	lists := map[*agui.Message]bool{}
	for i, a := range anew {
		equal(t, "messages", []int{len(a.Was.Messages), len(a.Is.Messages), a.Record.MessageCount}, []int{2 * (i + 1), 2 * (i + 1), 2 * (i + 1)})
		lists[&a.Was.Messages[0]], lists[&a.Is.Messages[0]] = true, true
		equal(t, "history key", a.Record.HistoryKey, lineage.KeyOf(a.Is.Messages).String())
	}
	if len(lists) > 40 {
		t.Errorf("there are %d lists of messages for %d runs", len(lists), runs)
	}
}

// Runs that do not only add to one another have lists of their own, and these are counted.
func TestPartition_RefusesToFoldAgainWhatHoldsTooManyMessages(t *testing.T) {
	for _, c := range []struct {
		each int
		want error
	}{{refoldMessages / 4, nil}, {refoldMessages / 2, ErrThreadLarge}} {
		s := newSim(t, nil)
		s.Chain()
		s.all()
		s.older("one", "eins")
		for i, m := range s.runs {
			if r, err := record.DecodeRun(m.Value); err == nil && r.RunID != "" {
				r.MessageCount = c.each
				s.runs[i] = &kgo.Record{Topic: m.Topic, Key: m.Key, Headers: m.Headers, Offset: m.Offset}
				s.runs[i].Value, err = record.EncodeRun(r)
				s.check(err)
			}
		}
		s.open(true)
		s.Refold("t")
		s.all()
		equal(t, fmt.Sprintf("refused with %d messages each", c.each), s.refused, []error{c.want})
	}
}

// Random histories whose records are of older rules: wherever the process dies around the requests, the
// records are those that these rules make at once, and a second request for each thread writes nothing.
func TestPartition_FoldsThreadsAgainInAnyHistory(t *testing.T) {
	seed := newSeed(t)
	done, refused, changed := 0, 0, 0
	shown := func() bool { return changed > 0 && changed < done }
	for i := range untilShown(shown) {
		rng := rand.New(rand.NewPCG(seed+uint64(i), 1))
		want := newSim(t, nil)
		partitiontest.Random(want.Script, rng, 40+rng.IntN(150), true)
		want.Now = want.Now.Add(2 * want.cfg.IdleLimit) // all that is open falls silent
		want.Send("t4", "late", started("late"))
		events, end := want.Events, want.Now
		want.open(false)
		want.finish()

		got := newSim(t, nil)
		got.Events, got.Now = slices.Clone(events), end
		got.open(false)
		got.finish()
		got.older("x", "y")
		got.open(true)
		threads := []string{"t1", "t2", "t3"}
		for _, thread := range threads {
			got.Refold(thread)
		}
		for got.committed.Processed < int64(len(got.Events)) {
			got.feed(1 + rng.IntN(3))
			switch rng.IntN(3) {
			case 0: // dies before the transaction ends
				_, err := got.part.collect(got.Now)
				got.check(err)
				got.open(rng.IntN(2) == 0)
			case 1: // or before it learns of the commit
				got.commit(false)
				got.open(rng.IntN(2) == 0)
			default:
				got.commit(true)
			}
		}
		// The same again: what was refused is refused, for the rest there is nothing to do.
		values := got.values()
		outcome := map[string]bool{}
		for _, thread := range threads {
			got.refused = nil
			got.Refold(thread)
			got.feed(1)
			got.commit(true)
			outcome[thread] = len(got.refused) == 0 || got.refused[0] == nil
		}
		a, b := want.values(), got.withoutRefolds()
		for key, value := range got.values() {
			if key == record.ProgressKey {
				continue
			}
			equal(t, fmt.Sprintf("history %d, a repeat, %s", seed+uint64(i), key), value, values[key])
			parts, err := record.SplitKey(key)
			got.check(err)
			if outcome[parts[1]] && len(parts) == 3 {
				equal(t, fmt.Sprintf("history %d, record %s", seed+uint64(i), key), b[key], a[key])
				done++
				if r, err := record.DecodeRun([]byte(value)); err == nil && r.Refolds > 0 {
					changed++
				}
			} else {
				refused++
			}
		}
		whole := got.snapshotValues()
		for key, value := range want.snapshotValues() {
			parts, err := record.SplitKey(key)
			got.check(err)
			if outcome[parts[1]] {
				equal(t, fmt.Sprintf("history %d, %s", seed+uint64(i), key), whole[key], value)
			}
		}
		if t.Failed() {
			for i, m := range events {
				t.Logf("%d %s %s %q %s", i, m.Key, header(m, record.HeaderRunID), header(m, record.HeaderSeq), m.Value)
			}
			return
		}
	}
	t.Logf("%d records of threads that were folded again, %d of them anew; %d of threads that were left", done, changed, refused)
	if !shown() {
		t.Error("the histories tell nothing")
	}
}

// A run is found as a parent by the history that it is told with by now, and no more by the one from before; on the
// folder that knew that one, and on a new one.
func TestPartition_PlacesRunsByTheHistoryThatIsToldAnew(t *testing.T) {
	for _, newFolder := range []bool{false, true} {
		s := newSim(t, nil)
		s.Chain()
		s.all()
		s.older("mr3", "old-id")
		s.open(true)
		s.Turn("between", "mbetween")
		s.Turn("root", "mroot") // the run that ended last is none of the chain's
		s.Refold("t")
		s.all()
		equal(t, "refused", s.refused, []error{nil})
		s.open(newFolder)
		for run, c := range map[string]struct{ id, parent string }{"by-old": {"old-id", "r2"}, "by-new": {"mr3", "r3"}} {
			s.Input("t", run, fmt.Sprintf(`{"threadId":"t","runId":%q,"messages":[%s,%s,%s,%s],"tools":[],"context":[]}`, run,
				assistantMessage("mr1", "one"), assistantMessage("mr2", "two"), assistantMessage(c.id, "one again"), userMessage("u", "and now?")))
			s.Send("t", run, started(run))
			s.Send("t", run, finished(run))
			s.all()
			equal(t, fmt.Sprintf("parent %s (new folder: %v)", run, newFolder), s.run(run).ParentRunID, c.parent)
		}
	}
}
