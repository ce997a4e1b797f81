package compactor

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the random histories; 0 takes a new one")
	roundFlag = flag.Int("histories", 40, "number of random histories")
)

// script writes a random history: threads with interleaved runs, inputs that continue, edit or fork,
// explicit parents, events without run id, repeats, late events, ids used again, silence, garbage; and
// where erasures are wanted, threads that are erased, also while runs are open.
func script(s *sim, rng *rand.Rand, events int, erasures bool) {
	s.says = rng
	type open struct {
		thread, id string
		seq        int
		numbered   bool
		left       int
	}
	var runs []*open
	ended := map[string][]string{} // by thread
	conversation := map[string][]string{}
	n := 0
	slow := []string{"t1", "t2", "t3"}[rng.IntN(3)]
	behind := time.Duration(rng.IntN(3)*rng.IntN(60)) * time.Minute // its producer's clock
	from := len(s.events)
	defer func() {
		for _, m := range s.events[from:] {
			if strings.HasSuffix(string(m.Key), "/"+slow) {
				m.Timestamp = m.Timestamp.Add(-behind)
			}
		}
	}()
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	for len(s.events) < events {
		s.now = s.now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
		if rng.IntN(60) == 0 {
			s.now = s.now.Add(2 * time.Hour)
		}
		if erasures && rng.IntN(80) == 0 {
			thread := pick("t1", "t2", "t3")
			s.erase(thread)
			if rng.IntN(2) == 0 { // the agents of open runs may know nothing of it and go on
				runs = slices.DeleteFunc(runs, func(r *open) bool { return r.thread == thread })
			}
			continue
		}
		if len(runs) < 1+rng.IntN(5) {
			n++
			r := &open{thread: pick("t1", "t2", "t3"), id: fmt.Sprintf("r%d", n), left: 2 + rng.IntN(8), numbered: rng.IntN(3) == 0}
			if old := ended[r.thread]; len(old) > 0 && rng.IntN(12) == 0 {
				r.id, r.numbered = pick(old...), false // used again
			}
			parent := ""
			if old := ended[r.thread]; len(old) > 0 && rng.IntN(4) == 0 {
				parent = fmt.Sprintf(`,"parentRunId":%q`, pick(append(old, "elsewhere", r.id)...))
			}
			input := ""
			if rng.IntN(2) == 0 {
				messages := slices.Clone(conversation[r.thread])
				if len(messages) > 0 && rng.IntN(3) == 0 {
					messages = messages[:rng.IntN(len(messages))]
				}
				switch rng.IntN(8) {
				case 0: // normalised, where it is on RUN_STARTED
					messages = nil
				case 1:
					messages = []string{`"a bare string"`, `{"content":"one without id"}`}
				}
				if rng.IntN(8) > 0 {
					messages = append(messages, userMessage(fmt.Sprintf("u%d", n), "hello"))
				}
				input = fmt.Sprintf(`{"threadId":%q, "runId":%q, "messages":[%s], "state":{"n":%d}, "tools":[], "context":[]%s}`,
					r.thread, r.id, strings.Join(messages, ", "), n, parent)
			}
			if input != "" && rng.IntN(2) == 0 {
				s.input(r.thread, r.id, input)
				input = ""
				if rng.IntN(3) == 0 {
					s.send(r.thread, "", custom("between input and start"))
				}
			}
			if input != "" {
				input = `,"input":` + input
			}
			value := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s%s}`, r.thread, r.id, parent, input)
			if r.numbered {
				s.send(r.thread, r.id, value, seq(0))
				r.seq = 1
			} else {
				s.send(r.thread, pick(r.id, r.id, ""), value)
			}
			runs = append(runs, r)
			continue
		}
		i := rng.IntN(len(runs))
		r := runs[i]
		header := r.id
		if !r.numbered && rng.IntN(4) == 0 {
			header = "" // whoever is the latest
		}
		say := func(value string) {
			if r.numbered {
				s.send(r.thread, r.id, value, seq(r.seq))
				if rng.IntN(6) == 0 {
					s.send(r.thread, r.id, value, seq(r.seq))
				}
				r.seq++
				switch rng.IntN(10) {
				case 0: // some are not there
					r.seq += 1 + rng.IntN(3)
				case 1: // one of them comes all the same, or one that was
					s.send(r.thread, r.id, value, seq(rng.IntN(r.seq)))
				}
				return
			}
			s.send(r.thread, header, value)
		}
		if r.left--; r.left == 0 {
			runs = slices.Delete(runs, i, i+1)
			ended[r.thread] = append(ended[r.thread], r.id)
			conversation[r.thread] = append(conversation[r.thread], assistantMessage("m"+r.id, "x")) // twice, of an id that is used again
			switch rng.IntN(6) {
			case 0: // never ends
			case 1:
				say(`{"type":"RUN_ERROR","message":"no"}`)
			default:
				say(fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, r.thread, r.id))
			}
			if rng.IntN(5) == 0 {
				s.send(r.thread, r.id, text("m"+r.id, "late"))
			}
			continue
		}
		switch rng.IntN(9) {
		case 0:
			say(fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/k%d","value": %d}]}`, rng.IntN(3), n))
		case 1:
			say(fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{ "s" : %d }}`, rng.IntN(2)))
		case 2:
			say(fmt.Sprintf(`{"type":"MESSAGES_SNAPSHOT","messages":[ { "id":"m%s", "role":"assistant", "content":"s" } ]}`, r.id))
		case 3:
			say(pick(custom("kept"), `{"type":"RAW","event":{}}`, `{"type":"STEP_STARTED","stepName":"s"}`, `{"type":"NEW"}`))
		case 4:
			say(pick(`{"type":"TEXT_MESSAGE_CONTENT","messageId":7}`, `{"type":`, `[]`))
		case 5:
			say(fmt.Sprintf(`{"type":"ACTIVITY_SNAPSHOT","messageId":"a%s","activityType":"plan","content":{"step": %d}}`, r.id, n))
		case 6:
			s.input(r.thread, r.id, fmt.Sprintf(`{"threadId":%q,"runId":%q,"messages":[],"tools":[],"context":[]}`, r.thread, r.id))
		default:
			say(text("m"+r.id, "x"))
		}
	}
}

func newSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return seed
}

func newRand(t *testing.T) *rand.Rand { return rand.New(rand.NewPCG(newSeed(t), 1)) }

// finish lets everything that is open be written.
func (s *sim) finish() {
	s.tb.Helper()
	s.feed(len(s.events))
	s.room = 0
	s.inRoom = s.endlessRoom()
	s.commit(true)
	s.now = s.now.Add(s.cfg.CheckpointMax)
	s.commit(true)
}

// values are the latest records' bytes on skein.runs by key, the position's among them, as the topic's
// compaction leaves them.
func (s *sim) values() map[string]string {
	out := map[string]string{}
	for _, m := range s.runs {
		out[string(m.Key)] = string(m.Value)
		if m.Value == nil {
			delete(out, string(m.Key))
		}
	}
	return out
}

// decidedValues are values without what a record of a run with only an input says of its place: where it would be if its first
// event came just then.
func (s *sim) decidedValues() map[string]string {
	s.tb.Helper()
	out := s.values()
	for key, value := range out {
		r, err := record.DecodeRun([]byte(value))
		if err != nil || !r.InputOnly() || r.Open != nil && r.Open.Placed {
			continue
		}
		r.ParentRunID, r.ParentBy, r.SpawnedBy, r.BranchID, r.RootRunID, r.Depth, r.Rewrote = "", record.ParentNone, "", "", "", 0, nil
		b, err := record.EncodeRun(r)
		s.check(err)
		out[key] = string(b)
	}
	return out
}

// checkHeads demands that the local store has the heads that a process takes out of the records, and this
// process what it needs of them. What it does not: when the run started, when an ended one had its last record, and
// of a run with only an input where it would be if its first event came now.
func (s *sim) checkHeads() {
	s.tb.Helper()
	text := func(h runstore.Metadata) string {
		b, err := json.Marshal(h)
		s.check(err)
		return string(b) + h.SpawnedBy // which may be no valid UTF-8
	}
	needed := func(h runstore.Metadata) string {
		if h.Pending {
			h.Run = lineage.Run{ID: h.ID, GivenID: h.GivenID, Start: h.Start, End: h.End, Status: h.Status, Synthetic: h.Synthetic, RawLost: h.RawLost}
		}
		if h.Sealed {
			h.LastAt = time.Time{}
		}
		h.StartedAt, h.Rewrote = time.Time{}, nil
		return text(h)
	}
	for key, value := range s.values() {
		r, err := record.DecodeRun([]byte(value))
		if err != nil {
			continue // a position, an erasure
		}
		want, err := runstore.MetadataOf(r)
		s.check(err)
		thread := key[:strings.LastIndexByte(key, '/')]
		stored, err := s.store.Thread(thread).All()
		s.check(err)
		at := slices.IndexFunc(stored, func(h *runstore.Metadata) bool { return h.ID == r.RunID })
		if at < 0 {
			s.tb.Errorf("the local store has no head of %s", key)
			continue
		}
		equal(s.tb, "head in the local store of "+key, text(*stored[at]), text(*want))
		if t := s.part.threads[thread]; t != nil && t.heads[r.RunID] != nil {
			equal(s.tb, "head in memory of "+key, needed(t.heads[r.RunID].Metadata), needed(*want))
		}
	}
}

// However events are split into batches, whenever runs are checkpointed or leave memory, and wherever the process
// dies, aborts or moves to another folder: the same records, each sealed one once, the same dead
// letters, each once.
func TestPartition_AnyBatchingAndAnyCrashGiveTheSame(t *testing.T) {
	seed := newSeed(t)
	for i := range *roundFlag {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			kept := agui.Families(rng.IntN(64))
			want := newSim(t, func(c *Config) { c.KeepEvents = kept })
			script(want, rng, 40+rng.IntN(200), true)
			sameHowever(t, rng, want, func(c *Config) {
				c.OpenRunBytes, c.maxHeads, c.KeepEvents = rng.IntN(2)<<20, rng.IntN(2)*maxHeads, kept
			})
		})
		if t.Failed() {
			return
		}
	}
}

// sameHowever demands that what a script makes when it is folded at once comes out with batches and crashes at
// any place, too, and returns what it was folded by then.
func sameHowever(t *testing.T, rng *rand.Rand, want *sim, change func(*Config)) (got *sim) {
	t.Helper()
	end := want.now
	want.open(false)
	want.finish()

	got = newSim(t, change)
	got.events, got.now = want.events, end
	got.room = []int{0, 1, 3 * runOverhead}[rng.IntN(3)]
	got.open(false)
	crashes := 0
	for got.settled.Processed < int64(len(got.events)) {
		got.feed(1 + rng.IntN(1+rng.IntN(30)))
		switch rng.IntN(4) {
		case 0:
			got.now = got.now.Add(got.cfg.CheckpointInterval)
		case 1:
			got.now = got.now.Add(got.cfg.CheckpointMax)
		}
		switch {
		case crashes < 40 && rng.IntN(3) == 0: // dies before the transaction ends, or it is aborted
			if _, err := got.part.collect(got.now); err != nil {
				t.Fatal(err)
			}
			got.open(rng.IntN(3) == 0)
			crashes++
		case crashes < 40 && rng.IntN(4) == 0: // dies after the commit, before it learns of it
			before := got.settled
			got.commit(false)
			switch rng.IntN(6) { // and meanwhile the group is deleted, or set back
			case 0:
				got.settled = Progress{Partitions: 1, noMetadata: true}
			case 1:
				got.settled = before
			}
			got.open(rng.IntN(3) == 0)
			crashes++
		default:
			got.commit(true)
		}
	}
	got.finish()

	a, b := want.decidedValues(), got.decidedValues()
	keys := keysOf(a)
	slices.Sort(keys)
	for _, k := range keys {
		if a[k] != b[k] {
			t.Errorf("record %s differs\n got %s\nwant %s", k, b[k], a[k])
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			t.Errorf("record %s should not be there", k)
		}
	}
	equal(t, "snapshots", got.snapshotValues(), want.snapshotValues())
	equal(t, "dead letters", got.letters(), want.letters())
	got.checkTold()
	got.checkHeads()
	sealed := map[string]int{}
	for _, m := range got.runs {
		if m.Value == nil || header(m, record.HeaderKind) != string(record.KindRun) {
			continue
		}
		r, err := record.DecodeRun(m.Value)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status.Sealed() || r.Closed { // an id may come again in another life of its thread
			sealed[fmt.Sprintf("%s/%s of %d", r.ThreadID, r.RunID, r.Raw.First)]++
		}
	}
	for id, n := range sealed {
		if n != 1 {
			t.Errorf("%s was sealed %d times", id, n)
		}
	}
	equal(t, "C", got.settled, want.settled)
	if t.Failed() {
		for i, m := range want.events {
			t.Logf("%d %s %s %q %s", i, m.Key, header(m, record.HeaderRunID), header(m, record.HeaderSeq), m.Value)
		}
		t.FailNow()
	}
	return got
}
