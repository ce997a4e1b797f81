package partition

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

// recorded are the records of a thread, by run.
type hasRecord map[string]*record.Run

// verify verifies runs of a thread (nil is all), by rows if bare, and with nothing taken but what is asked for where runs are named.
func (r hasRecord) verify(events []*kgo.Record, wanted []string, bare bool) ([]verify.Report, error) {
	return r.verifyFrom(0, events, wanted, bare)
}

// verifyFrom is verify where the log begins at start.
func (r hasRecord) verifyFrom(start int, events []*kgo.Record, wanted []string, bare bool) ([]verify.Report, error) {
	t, err := r.foldAgain(start, events, wanted, bare, false)
	if err != nil {
		return nil, err
	}
	return t.Reports()
}

// changes is what the rules of this version would change where the log begins at start.
func (r hasRecord) changes(start int, events []*kgo.Record) ([]verify.Result, error) {
	t, err := r.foldAgain(start, events, nil, false, true)
	if err != nil {
		return nil, err
	}
	return t.Changes()
}

// changed are the runs whose records the rules of this version would change, with the members.
func (s *sim) changed(r hasRecord) (runs []string) {
	s.tb.Helper()
	results, err := r.changes(0, s.Events)
	s.check(err)
	for _, result := range results {
		if result.Outcome == verify.Changes {
			runs = append(runs, fmt.Sprint(result.RunID, result.Differences))
		}
	}
	return runs
}

func (r hasRecord) foldAgain(start int, events []*kgo.Record, wanted []string, bare, follow bool) (*verify.Thread, error) {
	heads := make([]*record.Run, 0, len(r))
	for _, id := range slices.Sorted(maps.Keys(r)) {
		rec := r[id]
		if bare {
			row := *rec
			row.Messages, row.InputMessages, row.State, row.Open = nil, nil, nil, nil
			rec = &row
		}
		heads = append(heads, rec)
	}
	slices.SortFunc(heads, func(a, b *record.Run) int { return int(a.Raw.First - b.Raw.First) })
	t, err := verify.NewThread(heads, wanted, [2]int64{int64(start), int64(len(events))}, verify.NewRecords(slices.Collect(maps.Values(r))))
	if err != nil {
		return nil, err
	}
	key, err := record.ThreadKey(heads[0].Tenant, heads[0].ThreadID)
	if err != nil {
		return nil, err
	}
	if follow {
		t.FollowChanges()
	}
	ranges := [][2]int64{{int64(start), int64(len(events))}}
	if wanted != nil {
		ranges = t.Ranges()
	}
	for _, part := range ranges {
		for _, m := range events[max(part[0], 0):min(part[1], int64(len(events)))] {
			if string(m.Key) != key {
				continue
			}
			e, ok, err := kafka.RunEvent(m, &record.Headers{}, nil)
			if ok {
				err = t.Take(e)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// byThread are the latest records, by thread and run.
func (s *sim) byThread() map[string]hasRecord {
	s.tb.Helper()
	out := map[string]hasRecord{}
	for key, value := range s.values() {
		r, err := record.DecodeRun([]byte(value))
		if err != nil || strings.Count(key, "/") != 2 {
			continue
		}
		if out[r.ThreadID] == nil {
			out[r.ThreadID] = hasRecord{}
		}
		out[r.ThreadID][r.RunID] = r
	}
	return out
}

// tally counts what came of proofs.
type tally struct{ places, unprovedPlaces, unproved int }

// isProved demands that no record of the partition differs, however it is verified.
func (s *sim) isProved(rng *rand.Rand, n *tally) {
	s.tb.Helper()
	for thread, records := range s.byThread() {
		ids := slices.Sorted(maps.Keys(records))
		ways := map[string][]string{"all": nil, "one": {ids[rng.IntN(len(ids))]}, "some": ids[rng.IntN(len(ids)):]}
		for way, wanted := range ways {
			proofs, err := records.verify(s.Events, wanted, rng.IntN(2) == 0)
			s.check(err)
			for _, p := range proofs {
				if p.Verdict == verify.Differs {
					b, err := record.EncodeRun(records[p.RunID])
					s.check(err)
					s.tb.Errorf("%s of thread %s, run %s: %+v\n%s", way, thread, p.RunID, p, b)
				}
				switch {
				case p.Verdict == verify.Unproved:
					n.unproved++
				case slices.Contains(p.Unproved, verify.UnprovedPlace):
					n.unprovedPlaces++
				default:
					n.places++
				}
			}
		}
	}
	if s.tb.Failed() {
		for i, m := range s.Events {
			s.tb.Logf("%d %s %s %s %q %s", i, m.Key, header(m, record.HeaderKind), header(m, record.HeaderRunID), header(m, record.HeaderSeq),
				m.Value)
		}
		for key, value := range s.values() {
			s.tb.Logf("%s: %s", key, value)
		}
	}
}

// interleaved writes runs of one thread whose inputs, first events and ends lie in any order, each with a parent by
// name, by content, or none.
func interleaved(s *sim, rng *rand.Rand) {
	s.Says = rng
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	n := 1 + rng.IntN(6)
	conversations := make([][]string, n)
	steps := make([][]func(), n)
	for i := range n {
		id := fmt.Sprint("r", i)
		var messages []string
		if i > 0 && rng.IntN(4) > 0 {
			messages = slices.Clone(conversations[rng.IntN(i)])
			if len(messages) > 0 && rng.IntN(4) == 0 {
				messages = messages[:rng.IntN(len(messages))]
			}
		}
		messages = append(messages, userMessage("u"+id, "hello"))
		conversations[i] = append(slices.Clone(messages), assistantMessage("m"+id, "x"))
		parent := ""
		if rng.IntN(3) == 0 {
			parent = fmt.Sprintf(`,"parentRunId":%q`, pick(fmt.Sprint("r", rng.IntN(n)), fmt.Sprint("r", rng.IntN(n)), "elsewhere"))
		}
		input := fmt.Sprintf(`{"threadId":"t","runId":%q,"messages":[%s],"state":{"n":%d},"tools":[],"context":[]%s}`, id, strings.Join(messages, ","), i, parent)
		start := `{"type":"RUN_STARTED","threadId":"t","runId":%q%s}`
		header := pick(id, id, "")
		switch rng.IntN(4) {
		case 0, 1:
			steps[i] = append(steps[i], func() { s.Input("t", id, input) })
			if rng.IntN(6) == 0 {
				steps[i] = append(steps[i], func() { s.Input("t", id, strings.Replace(input, "hello", "again", 1)) })
			}
			start = fmt.Sprintf(start, id, "")
		case 2:
			start = fmt.Sprintf(start, id, `,"input":`+input)
		default:
			start = fmt.Sprintf(start, id, parent)
		}
		if rng.IntN(8) > 0 {
			steps[i] = append(steps[i], func() { s.Send("t", header, start) })
			for k := range 1 + rng.IntN(3) {
				value := pick(text("m"+id, "x"), text("m"+id, "x"), fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/k","value":%d}]}`, k), `{"type":`)
				steps[i] = append(steps[i], func() { s.Send("t", pick(id, id, id, ""), value) })
			}
			if rng.IntN(5) > 0 {
				end := pick(`{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, `{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, `{"type":"RUN_ERROR","message":%q}`)
				steps[i] = append(steps[i], func() { s.Send("t", id, fmt.Sprintf(end, id)) })
			}
		}
	}
	for len(steps) > 0 {
		i := rng.IntN(len(steps))
		if len(steps[i]) == 0 {
			steps = slices.Delete(steps, i, i+1)
			continue
		}
		for range 1 + rng.IntN(3) {
			if len(steps[i]) == 0 {
				break
			}
			s.Now = s.Now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			switch rng.IntN(40) {
			case 0, 1:
				s.Now = s.Now.Add(2 * time.Hour)
			case 2:
				s.Now = s.Now.Add(10 * 24 * time.Hour)
			}
			if rng.IntN(10) == 0 {
				s.Send("other", "o", custom("between"))
			}
			if rng.IntN(10) == 0 {
				s.SendKind(record.KindCancel, "t", fmt.Sprint("r", rng.IntN(n)), `{}`)
			}
			steps[i][0]()
			steps[i] = steps[i][1:]
		}
	}
}

// In whatever order inputs, first events and ends of a thread's runs come: the compactor places them the same
// wherever it dies, and no record of them is said to differ, neither in the end nor on the way.
func TestVerifier_ProvesRunsInAnyOrderOfInputsAndFirstEvents(t *testing.T) {
	seed := newSeed(t)
	var n tally
	for i := range 10 * rounds() {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			want := newSim(t, nil)
			interleaved(want, rng)
			sameHowever(t, rng, want, nil).isProved(rng, &n)
			onTheWay(want, rng, &n)
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%+v", n)
	if n.places < n.unprovedPlaces+n.unproved {
		t.Errorf("of few runs anything is proved: %+v", n)
	}
}

// A run that is announced has begun, although its record has no event up to which it could be read again: it takes part where the next run
// is placed.
func TestVerifier_CountsAnAnnouncedRunAsBegun(t *testing.T) {
	s := newSim(t, nil)
	s.answer("r0", started("r0"))
	s.Send("t", "r1", startedWith("r1", "r0", "["+userMessage("u1", "one")+"]"))
	s.answer("r2", startedWith("r2", "r0", "["+userMessage("u2", "two")+"]"))
	s.all()
	records := s.byThread()["t"]
	equal(t, "branches", []string{records["r1"].BranchID, records["r2"].BranchID}, []string{"r0", "r2"})
	for _, wanted := range [][]string{nil, {"r2"}, {"r1", "r2"}} {
		proofs, err := records.verify(s.Events, wanted, false)
		s.check(err)
		if p := proofs[len(proofs)-1]; p.Verdict != verify.Proved {
			t.Errorf("wanted %v: %+v", wanted, p)
		}
	}
}

// onTheWay verifies what records say while a partition goes on, commit by commit.
func onTheWay(script *sim, rng *rand.Rand, n *tally) {
	script.tb.Helper()
	s := newSim(script.tb, nil)
	s.Now = script.Now
	s.open(false)
	for _, m := range script.Events {
		s.Events = append(s.Events, m)
		s.feed(1)
		switch rng.IntN(12) {
		case 0:
			s.Now = s.Now.Add(s.cfg.CheckpointMax)
		case 1:
			s.Now = s.Now.Add(10 * 24 * time.Hour) // what is silent is closed
		case 2:
			s.open(rng.IntN(3) == 0)
		}
		if rng.IntN(3) == 0 {
			s.commit(true)
			s.isProved(rng, n)
		}
		if s.tb.Failed() {
			return
		}
	}
}

// A member that is changed in a record is found: the record differs, or where the place of its run cannot be told, that is said.
func TestVerifier_FindsWhatIsChanged(t *testing.T) {
	seed := newSeed(t)
	found, said := 0, 0
	for i := range 10 * rounds() {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			s := newSim(t, nil)
			interleaved(s, rng)
			s.all()
			s.finish()
			records := s.byThread()["t"]
			ids := slices.Sorted(maps.Keys(records))
			if len(ids) == 0 {
				return
			}
			id := ids[rng.IntN(len(ids))]
			if records[id].InputOnly() {
				return
			}
			was, err := record.EncodeRun(records[id])
			s.check(err)
			name := spoil(rng, records[id], ids)
			is, err := record.EncodeRun(records[id])
			s.check(err)
			if string(is) == string(was) {
				return
			}
			for _, wanted := range [][]string{nil, {id}} {
				proofs, err := records.verify(s.Events, wanted, rng.IntN(2) == 0)
				s.check(err)
				at := slices.IndexFunc(proofs, func(p verify.Report) bool { return p.RunID == id })
				switch p := proofs[at]; {
				case p.Verdict == verify.Differs && (slices.Contains(p.Differences, name) || strings.HasPrefix(name, "raw.")):
					found++
				case p.Verdict == verify.Unproved, isPlace(name) && slices.Contains(p.Unproved, verify.UnprovedPlace):
					said++
				default:
					t.Errorf("%s of %s was changed, wanted %v: %+v\nwas %s\nis  %s", name, id, wanted, p, was, is)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d found, %d said to be unproved", found, said)
	if found+said >= 100 && found < 2*said { // the few histories of a short test may hold any share
		t.Errorf("%d found, %d said to be unproved", found, said)
	}
}

func isPlace(member string) bool {
	return slices.Contains([]string{"parentRunId", "parentBy", "spawnedBy", "spawned", "branchId", "rootRunId", "depth", "base"}, member)
}

// spoil changes one member of a record and returns its name.
func spoil(rng *rand.Rand, r *record.Run, ids []string) string {
	other := func(now string) string {
		if len(ids) > 1 && rng.IntN(3) > 0 {
			now = ids[rng.IntN(len(ids))]
		} else {
			now += "x"
		}
		return now
	}
	digit := func(hash string) string {
		at := rng.IntN(len(hash))
		return hash[:at] + string("0123456789abcdef"[rng.IntN(16)]) + hash[at+1:]
	}
	ways := []func() string{
		func() string { r.ParentRunID = other(r.ParentRunID); return "parentRunId" },
		func() string {
			r.ParentBy = []record.ParentBy{record.ParentExplicit, record.ParentContent, record.ParentLatest, record.ParentNone}[rng.IntN(4)]
			return "parentBy"
		},
		func() string {
			by := agui.String(other(string(r.SpawnedBy)))
			if r.Spawned {
				r.Spawned = false
				return "spawned"
			}
			r.SpawnedBy = by
			return "spawnedBy"
		},
		func() string { r.BranchID = other(r.BranchID); return "branchId" },
		func() string { r.RootRunID = other(r.RootRunID); return "rootRunId" },
		func() string { r.Depth += 1 - 2*rng.IntN(2); return "depth" },
		func() string {
			if r.Base != "" && rng.IntN(2) == 0 {
				r.Base = ""
			} else {
				r.Base = other(r.Base)
			}
			return "base"
		},
		func() string { r.Raw.SHA256 = digit(r.Raw.SHA256); return "raw.sha256" },
		func() string { r.Raw.Events++; return "raw.events" },
		func() string { r.Raw.NextSeq++; return "raw.nextSeq" },
		func() string { r.Raw.First++; return "raw.first" },
		func() string { r.Raw.Next--; return "raw.next" },
		func() string {
			at := rng.IntN(len(r.Raw.Ranges))
			r.Raw.Ranges[at][rng.IntN(2)] += int64(1 - 2*rng.IntN(2))
			return "raw.ranges"
		},
		func() string { r.Agent += "x"; return "agent" },
		func() string { r.Labels = map[string]string{"a": fmt.Sprint(len(r.Labels))}; return "labels" },
		func() string {
			if r.Status.Sealed() {
				r.Synthetic = !r.Synthetic
			}
			return "synthetic"
		},
		func() string { r.MessageCount++; return "messageCount" },
		func() string { r.StartedAt = r.StartedAt.Add(time.Millisecond); return "startedAt" },
		func() string { r.State = json.RawMessage(`{"n":77}`); return "state" },
	}
	if r.HistoryKey != "" {
		ways = append(ways, func() string { r.HistoryKey = digit(r.HistoryKey); return "historyKey" })
	}
	if r.InputSHA256 != "" {
		ways = append(ways, func() string { r.InputSHA256 = digit(r.InputSHA256); return "inputSha256" })
	}
	if len(r.Messages) > 0 {
		ways = append(ways, func() string {
			at := rng.IntN(len(r.Messages))
			r.Messages[at].Raw = json.RawMessage(strings.Replace(string(r.Messages[at].Raw), `"content":"`, `"content":"!`, 1))
			return "messages"
		})
	}
	if len(r.InputMessages) > 0 {
		ways = append(ways, func() string { r.InputMessages = r.InputMessages[1:]; return "inputMessages" })
	}
	for _, rule := range slices.Sorted(maps.Keys(r.Stats.Anomalies)) {
		ways = append(ways, func() string { r.Stats.Anomalies[rule]++; return "stats.anomalies" })
	}
	return ways[rng.IntN(len(ways))]()
}

// A run whose input came while its parent was going on, and whose first event after that had ended, starts from the parent's end:
// when it is folded again, too.
func TestThread_FoldsAgainARunWhoseInputCameBeforeItsParentsEnd(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "r1", started("r1"))
	s.Input("t", "r2", `{"threadId":"t","runId":"r2","messages":[{"id":"u1","role":"user","content":"one"},{"id":"m1","role":"assistant","content":"x"}],"tools":[],"context":[],"parentRunId":"r1"}`)
	s.Send("t", "r1", `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u1","role":"user","content":"one"}]}`)
	s.Send("t", "r1", text("m1", "x"))
	s.Send("t", "r1", finished("r1"))
	s.Send("t", "r2", started("r2"))
	s.Send("t", "r2", text("m2", "two"))
	s.Send("t", "r2", finished("r2"))
	s.all()
	records := s.byThread()["t"]
	equal(t, "base", records["r2"].Base, "r1")
	records["r2"].Messages[0].Raw = json.RawMessage(assistantMessage("m2", "zwei")) // as older rules had it
	equal(t, "runs that change", s.changed(records), []string{"r2[{messages /0/content}]"})
}

// Records that older rules have made stay as they are: no proof says that their place differs.
func TestVerifier_ProvesNoPlaceThatOtherRulesHaveDecided(t *testing.T) {
	s := newSim(t, nil)
	s.answer("run1", startedWith("run1", "", "["+userMessage("u1", "one")+"]"))
	s.answer("run2", startedWith("run2", "", "["+userMessage("u2", "two")+"]"))
	s.all()
	records := s.byThread()["t"]
	r := records["run2"]
	if r.ParentBy != record.ParentLatest {
		t.Fatalf("its parent is found by %s", r.ParentBy)
	}
	// As a list on RUN_STARTED was always the whole conversation.
	r.ParentRunID, r.ParentBy, r.BranchID, r.RootRunID, r.Depth, r.Base = "", record.ParentNone, "run2", "run2", 0, ""
	r.InputForm, r.MessageCount, r.HistoryKey = "", 2, lineage.KeyOf(r.Messages).String()
	proofs, err := records.verify(s.Events, []string{"run2"}, false)
	s.check(err)
	if p := proofs[0]; p.Verdict != verify.Differs { // by these rules it is wrong
		t.Fatalf("%+v", p)
	}
	r.FoldVersion = compact.Version - 1
	proofs, err = records.verify(s.Events, []string{"run2"}, false)
	s.check(err)
	if p := proofs[0]; p.Verdict != verify.Proved || !slices.Contains(p.Unproved, verify.UnprovedPlace) {
		t.Errorf("%+v", p)
	}
}
