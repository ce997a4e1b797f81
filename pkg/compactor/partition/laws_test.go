package partition

import (
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the random histories; 0 takes a new one")
	roundFlag = flag.Int("histories", 0, "number of random histories; 0 takes 40, with -short 2")
)

// rounds is how many random histories each law is held to.
func rounds() int {
	switch {
	case *roundFlag > 0:
		return *roundFlag
	case testing.Short():
		return 2
	default:
		return 40
	}
}

// untilShown yields 0, 1, 2, …: as many as were asked for, and more of them, up to twenty times as many, until shown says that they
// have come to what the law is about. A law that few histories come to would otherwise fail, or hold for nothing, by the seed.
func untilShown(shown func() bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; i < rounds() || i < 20*rounds() && !shown(); i++ {
			if !yield(i) {
				return
			}
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

// finish lets everything that is open be written.
func (s *sim) finish() {
	s.tb.Helper()
	s.feed(len(s.Events))
	s.room = 0
	s.inRoom = s.endlessRoom()
	s.commit(true)
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
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

// decidedValues are values without what a record of a run with only an input says of its place, and the state it has from there: where
// it would be if its first event came just when the record was made.
func (s *sim) decidedValues() map[string]string {
	s.tb.Helper()
	out := s.values()
	for key, value := range out {
		r, err := record.DecodeRun([]byte(value))
		if err != nil || !r.InputOnly() || r.Open != nil && r.Open.Placed {
			continue
		}
		r.Lineage, r.Rewrote, r.State = record.Lineage{ParentBy: record.ParentNone}, nil, nil
		b, err := record.EncodeRun(r)
		s.check(err)
		out[key] = string(b)
	}
	return out
}

// checkHeads demands that the local store has the runs that a process takes out of the records, and this
// process what it needs of them. What it does not: when the run started, when an ended one had its last record, and
// of a run with only an input where it would be if its first event came now.
func (s *sim) checkHeads() {
	s.tb.Helper()
	text := func(h fold.Metadata) string {
		b, err := json.Marshal(h)
		s.check(err)
		return string(b)
	}
	needed := func(h fold.Metadata) string {
		if h.Pending {
			h.Run = lineage.Run{ID: h.ID, ClientID: h.ClientID, Start: h.Start, End: h.End, Status: h.Status, Synthetic: h.Synthetic,
				RawLost: h.RawLost}
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
		want, err := fold.MetadataOf(r)
		s.check(err)
		thread := key[:strings.LastIndexByte(key, '/')]
		stored, err := s.store.Thread(thread).All()
		s.check(err)
		at := slices.IndexFunc(stored, func(h *fold.Metadata) bool { return h.ID == r.RunID })
		if at < 0 {
			s.tb.Errorf("the local store has no head of %s", key)
			continue
		}
		equal(s.tb, "head in the local store of "+key, text(*stored[at]), text(*want))
		t := s.part.threads[thread]
		if t == nil || t.Get(r.RunID) == nil {
			continue
		}
		switch now := t.Get(r.RunID).Metadata; {
		case r.Raw.Next > r.Raw.First:
			equal(s.tb, "head in memory of "+key, needed(now), needed(*want))
		case want.Placed && now.Resolved(): // an announcement: memory has more
			equal(s.tb, "announced place of "+key, []any{fold.RecordLineage(want.Run), want.Base}, []any{fold.RecordLineage(now.Run), now.Base})
		}
	}
}

// However events are split into batches, whenever runs are checkpointed or leave memory, and wherever the process
// dies, aborts or moves to another folder: the same records, each sealed one once, the same dead
// letters, each once. The raw events prove the records.
func TestPartition_AnyBatchingAndAnyCrashGiveTheSame(t *testing.T) {
	seed := newSeed(t)
	var proofs tally
	late, answered, spawned, named := 0, 0, 0, 0
	for i := range untilShown(func() bool { return late > 0 && answered > 0 && spawned > 0 && named > 0 }) {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			kept := agui.Families(rng.IntN(64))
			want := newSim(t, func(c *Config) { c.KeepEvents = kept })
			partitiontest.Random(want.Script, rng, 40+rng.IntN(200), true)
			failLate(want.Script, rng)
			vary(want.Events, rng)
			patch(want.Script, rng)
			spoilEnds(want.Events, rng)
			sameHowever(t, rng, want, func(c *Config) {
				c.OpenRunBytes, c.maxThreadRunsInMemory, c.KeepEvents = rng.IntN(2)<<20, rng.IntN(2)*maxThreadRunsInMemory, kept
			}).isProved(rng, &proofs)
			for key := range want.values() {
				if strings.HasSuffix(key, "//title") {
					named++
				}
			}
			for _, r := range want.latest() {
				if r.LateError != nil {
					late++
				}
				if len(r.Resumes) > 0 && r.ParentBy == record.ParentContent {
					answered++
				}
				if r.Spawned {
					spawned++
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%+v, %d failed late, %d answered interrupts, %d were spawned, %d titles", proofs, late, answered, spawned, named)
	if late == 0 || answered == 0 || spawned == 0 || named == 0 {
		t.Error("the histories lack some of these")
	}
	// A share of few histories says little.
	if proofs.places == 0 || rounds() >= 40 && 2*proofs.places < proofs.unprovedPlaces+proofs.unproved {
		t.Errorf("of few runs anything is proved: %+v", proofs)
	}
}

// vary gives the runs of a history interrupts, which later inputs answer, parents that are open, and encrypted values with and without a
// type.
func vary(events []*kgo.Record, rng *rand.Rand) {
	open, asked := map[string][]string{}, map[string][]string{} // by thread
	for i, m := range events {
		thread, v, run := string(m.Key), string(m.Value), header(m, record.HeaderRunID)
		starts := strings.Contains(v, `"type":"RUN_STARTED"`)
		input := header(m, record.HeaderKind) == string(record.KindInput) || starts && strings.Contains(v, `"input":`)
		switch {
		case strings.Contains(v, `"type":"RUN_FINISHED"`):
			open[thread] = slices.DeleteFunc(open[thread], func(id string) bool { return id == run })
			if rng.IntN(2) == 0 {
				id := fmt.Sprintf("i%d", i/(1+rng.IntN(2)))
				asked[thread] = append(asked[thread], id)
				v = fmt.Sprintf(`%s,"outcome":{"type":"interrupt","interrupts":[{"id":%q,"reason":"r"},{"id":"second"},{"id":%q}]}}`, v[:len(v)-1], id, id)
			}
		case starts || input:
			if input && len(asked[thread]) > 0 && rng.IntN(3) == 0 {
				of := asked[thread]
				v = strings.Replace(v, `"tools":[]`, fmt.Sprintf(`"tools":[],"resume":[{"interruptId":%q,"status":"resolved"}]`, of[rng.IntN(len(of))]), 1)
			}
			if of := open[thread]; len(of) > 0 && !strings.Contains(v, "parentRunId") && rng.IntN(2) == 0 {
				v = fmt.Sprintf(`%s,"parentRunId":%q}`, v[:len(v)-1], of[rng.IntN(len(of))])
			}
			if starts && run != "" {
				open[thread] = append(open[thread], run)
			}
		case strings.Contains(v, `"type":"TEXT_MESSAGE_CHUNK"`) && rng.IntN(5) == 0:
			kind := []string{"", `,"encryptedValueType":"a"`, `,"encryptedValueType":"b"`}[rng.IntN(3)]
			v = fmt.Sprintf(`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m%s","encryptedValue":"%d"%s}`, run, i, kind)
		}
		m.Value = []byte(v)
	}
}

// failLate puts a RUN_ERROR at some place after a third of the RUN_FINISHED of a history, with its run's id or without.
func failLate(s *partitiontest.Script, rng *rand.Rand) {
	var all []*kgo.Record
	waiting := map[int][]*kgo.Record{} // by how many events are left to come
	for i, m := range s.Events {
		all = append(append(all, m), waiting[len(s.Events)-i]...)
		if !strings.Contains(string(m.Value), "RUN_FINISHED") || rng.IntN(3) > 0 {
			continue
		}
		late := *m
		late.Value = []byte(`{"type":"RUN_ERROR","message":"late","code":"FLUSH"}`)
		late.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h kgo.RecordHeader) bool {
			return h.Key == record.HeaderSeq || h.Key == record.HeaderRunID && rng.IntN(3) == 0
		})
		for range 1 + rng.IntN(2) {
			at := max(len(s.Events)-i-rng.IntN(1+rng.IntN(10)), 1)
			if at == len(s.Events)-i {
				all = append(all, &late)
			} else {
				waiting[at] = append(waiting[at], &late)
			}
		}
	}
	s.Events = nil
	for _, m := range all {
		one := *m
		s.Append(&one)
	}
}

// patch puts patches of threads between the events of a history.
func patch(s *partitiontest.Script, rng *rand.Rand) {
	events := s.Events
	s.Events, s.Says = nil, nil
	now := s.Now
	for i, m := range events {
		s.Append(m)
		if rng.IntN(20) == 0 {
			s.Now = m.Timestamp
			s.SendKind(record.KindThread, fmt.Sprint("t", 1+rng.IntN(3)), "", []string{
				fmt.Sprintf(`{"title":"%d"}`, i), `{"title":null}`, `{"archived":true}`, `{"archived":false}`,
				fmt.Sprintf(`{"title":"%d","archived":true}`, i), `{"title":7}`,
			}[rng.IntN(6)])
		}
	}
	s.Now = now
}

// sameHowever demands that what a script makes when it is folded at once comes out with batches and crashes at
// any place, too, and returns what it was folded by then.
func sameHowever(t *testing.T, rng *rand.Rand, want *sim, change func(*Config)) (got *sim) {
	t.Helper()
	end := want.Now
	want.open(false)
	want.finish()

	got = newSim(t, change)
	got.Events, got.Now = want.Events, end
	got.live(rng)

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
	got.checkRecords()
	equal(t, "C", got.committed, want.committed)
	if t.Failed() {
		for i, m := range want.Events {
			t.Logf("%d %s %s %q %s", i, m.Key, header(m, record.HeaderRunID), header(m, record.HeaderSeq), m.Value)
		}
		t.FailNow()
	}
	return got
}

// live feeds the events in batches, while the process dies, aborts and moves to another folder, until all are processed.
func (s *sim) live(rng *rand.Rand) {
	s.tb.Helper()
	s.room = []int{0, 1, 3 * runOverhead}[rng.IntN(3)]
	s.open(false)
	crashes := 0
	for s.committed.Processed < int64(len(s.Events)) {
		s.feed(1 + rng.IntN(1+rng.IntN(30)))
		switch rng.IntN(8) {
		case 2, 3:
			s.Now = s.Now.Add(snapshotQuiet)
		case 4:
			s.Now = s.Now.Add(snapshotQuiet / 2)
		case 0, 5:
			s.Now = s.Now.Add(s.cfg.CheckpointInterval)
		case 1, 6:
			s.Now = s.Now.Add(s.cfg.CheckpointMax)
		}
		switch {
		case s.failovers > 0 && rng.IntN(10) == 0:
			s.failovers--
			s.failOver(rng.IntN(len(s.runs) + 1))
		case crashes < 40 && rng.IntN(3) == 0: // dies before the transaction ends, or it is aborted
			_, err := s.part.collect(s.Now)
			s.check(err)
			s.open(rng.IntN(3) == 0)
			crashes++
		case crashes < 40 && rng.IntN(4) == 0: // dies after the commit, before it learns of it
			before := s.committed
			s.commit(false)
			switch rng.IntN(6) { // and meanwhile the group is deleted, or set back
			case 0:
				s.committed = Progress{Partitions: 1, noMetadata: true}
			case 1:
				s.committed = before
			}
			s.open(rng.IntN(3) == 0)
			crashes++
		default:
			s.commit(true)
		}
	}
	s.finish()
}

// failOver has the partition go on in another cluster, to which the first n records of skein.runs were mirrored, or fewer: they may end in
// the middle of a transaction, but not where mayCut says no. The group's offset is that of the last progress record, where a
// group without offsets begins, as package adopt leaves it.
func (s *sim) failOver(n int) {
	s.tb.Helper()
	for !s.mayCut(n) {
		n--
	}
	s.runs, s.nexts, s.committed = s.runs[:n:n], map[string]int64{}, Progress{Partitions: 1}
	for _, m := range s.runs {
		if string(m.Key) != record.ProgressKey {
			continue
		}
		reached, err := record.DecodeProgress(m.Value)
		s.check(err)
		s.committed, err = ParseProgress(reached.Committed, reached.Metadata(), 1)
		s.check(err)
	}
	s.open(true)
}

// mayCut reports whether a partition goes on the same after n records of skein.runs. It does not in the middle of an erasure, which adopt
// refuses, nor between a run's record and the first record with the place of a run of the thread that began before what it tells: that one
// is placed by what the record tells.
func (s *sim) mayCut(n int) bool {
	s.tb.Helper()
	isProgress := func(m *kgo.Record) bool { return string(m.Key) == record.ProgressKey }
	var told []*record.Run
	for i := n - 1; i >= 0 && !isProgress(s.runs[i]); i-- {
		switch m := s.runs[i]; {
		case header(m, record.HeaderKind) != string(record.KindRun):
		case m.Value == nil:
			if !slices.ContainsFunc(s.runs[i:n], func(m *kgo.Record) bool { return header(m, record.HeaderKind) == string(record.KindErase) }) {
				return false
			}
		default:
			r, err := record.DecodeRun(m.Value)
			s.check(err)
			told = append(told, r)
		}
	}
	placed := map[string]bool{}
	for _, m := range s.runs[:n] {
		if header(m, record.HeaderKind) != string(record.KindRun) {
			continue
		}
		placed[string(m.Key)] = false
		if m.Value != nil {
			r, err := record.DecodeRun(m.Value)
			s.check(err)
			placed[string(m.Key)] = r.Open == nil || !r.Open.Pending || r.Open.Placed
		}
	}
	for _, m := range s.runs[n:] {
		if isProgress(m) {
			break
		}
		if m.Value == nil || placed[string(m.Key)] || header(m, record.HeaderKind) != string(record.KindRun) {
			continue
		}
		r, err := record.DecodeRun(m.Value)
		s.check(err)
		for _, e := range told { // that a run is silent is told some time after its last event
			if e.ThreadID == r.ThreadID && (r.Raw.First < e.Raw.Next || e.Status == record.StatusAbandoned) {
				return false
			}
		}
	}
	return true
}

// Wherever a mirror of skein.runs ends, and though the other topics go further: the same records, each sealed one once.
func TestPartition_AnyEndOfAMirrorGivesTheSame(t *testing.T) {
	seed := newSeed(t)
	for i := range rounds() {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			want := newSim(t, nil)
			partitiontest.Random(want.Script, rng, 40+rng.IntN(200), true)
			failLate(want.Script, rng)
			vary(want.Events, rng)
			patch(want.Script, rng)
			end := want.Now
			want.open(false)
			want.finish()
			got := newSim(t, nil)
			got.Events, got.Now, got.failovers = want.Events, end, 1+rng.IntN(5)
			got.live(rng)
			equal(t, "records", got.decidedValues(), want.decidedValues())
			letters := got.letters() // one may come again, as the mirror has had it
			slices.Sort(letters)
			wanted := want.letters()
			slices.Sort(wanted)
			equal(t, "dead letters", slices.Compact(letters), wanted)
			got.checkRecords()
		})
		if t.Failed() {
			return
		}
	}
}

// checkRecords demands of the records what holds however they came about.
func (s *sim) checkRecords() {
	s.tb.Helper()
	s.checkTold()
	s.checkHeads()
	s.checkSnapshots()
	sealed, failed := map[string]int{}, map[string]int{}
	starts := map[string]time.Time{}
	for _, m := range s.runs {
		if m.Value == nil || header(m, record.HeaderKind) != string(record.KindRun) {
			continue
		}
		r, err := record.DecodeRun(m.Value)
		if err != nil {
			s.tb.Fatal(err)
		}
		// ClickHouse sorts runs by start, and relies on this (docs/adr/017-runs-by-time.md).
		if life := fmt.Sprintf("%s/%s of %d", r.ThreadID, r.RunID, r.Raw.First); r.Raw.Events > 0 {
			if at, has := starts[life]; has && !at.Equal(r.StartedAt) {
				s.tb.Errorf("%s started at %s, and in a later record at %s", life, at, r.StartedAt)
			}
			starts[life] = r.StartedAt
		}
		switch life := fmt.Sprintf("%s/%s of %d", r.ThreadID, r.RunID, r.Raw.First); { // an id may come again in another life of its thread
		case r.LateError != nil:
			failed[life]++
		case r.Status.Sealed() || r.Closed:
			sealed[life]++
		}
	}
	for id, n := range sealed {
		if n != 1 {
			s.tb.Errorf("%s was sealed %d times", id, n)
		}
	}
	for id, n := range failed {
		if n != 1 || sealed[id] != 1 {
			s.tb.Errorf("%s failed late %d times, and was sealed %d times", id, n, sealed[id])
		}
	}
}

// checkSnapshots demands that the last snapshots of each branch are those of its last end at which they were due.
func (s *sim) checkSnapshots() {
	s.tb.Helper()
	want, next := map[string]string{}, map[string]int64{}
	for _, value := range s.values() {
		r, err := record.DecodeRun([]byte(value))
		if err != nil {
			continue // a position, an erasure
		}
		branch, err := record.RunKey(r.Tenant, r.ThreadID, r.BranchID)
		s.check(err)
		if r.Status.Sealed() && r.SinceSnapshot == 0 && r.Raw.Next > next[branch] {
			want[branch], next[branch] = r.RunID, r.Raw.Next
		}
	}
	for _, kind := range []agui.Type{agui.MessagesSnapshot, agui.StateSnapshot} {
		got := map[string]string{}
		for key, m := range s.snapshots() {
			if branch, ok := strings.CutSuffix(key, "/"+string(kind)); ok {
				got[branch] = header(m, record.HeaderRunID)
			}
		}
		equal(s.tb, "runs of the last snapshots", got, want)
	}
}

// checkNothingLost demands that each event without a number that does not end its run is in a record or a dead letter, unless its thread
// was erased later.
func (s *sim) checkNothingLost() {
	s.tb.Helper()
	found := map[int64]bool{}
	for _, m := range s.runs {
		if r, err := record.DecodeRun(m.Value); err == nil {
			for _, part := range r.Raw.Ranges {
				for o := part[0]; o < part[1]; o++ {
					found[o] = true
				}
			}
		}
	}
	for _, letter := range s.letters() {
		var o int64
		_, err := fmt.Sscanf(letter, "0:%d ", &o)
		s.check(err)
		found[o] = true
	}
	erased := map[string]bool{}
	for _, m := range slices.Backward(s.Events) {
		switch kind := record.Kind(header(m, record.HeaderKind)); {
		case kind == record.KindErase:
			erased[string(m.Key)] = true
		case found[m.Offset], erased[string(m.Key)], kind == record.KindInput, kind == record.KindThread, header(m, record.HeaderSeq) != "",
			strings.Contains(string(m.Value), "RUN_FINISHED"):
		default:
			s.tb.Errorf("event %d is in no record and no dead letter", m.Offset)
		}
	}
}
