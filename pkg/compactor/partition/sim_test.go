package partition

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// sim is one partition with a log on either side, so that a test decides what is committed, what is
// aborted and where a process dies. Time stands still unless the test moves it.
type sim struct {
	*partitiontest.Script
	tb  testing.TB
	cfg Config

	runs      []*kgo.Record    // committed records of skein.runs
	other     []*kgo.Record    // committed records of the other topics
	nexts     map[string]int64 // the offset behind each run of runs, by key, and the one behind the run of each snapshot
	committed Progress

	newStore  func() (*runstore.Store, error)
	store     *runstore.Store
	part      *Processor
	inRoom    *Room
	stopping  bool                      // no branch awaits its snapshot any longer
	cuts      bool                      // runs are cut where memory is short
	room      int                       // what the partition has of it for runs that are due; 0 is the default
	failovers int                       // how often live ends in a mirror
	read      int                       // events that the partition has been given
	nextLimit func() int                // the record limit of the next process; nil: it does not change
	reads     map[string]runstore.Reads // of the store, up to the last commit since the one before
	differing []Repetition              // of all transactions
}

func newSim(tb testing.TB, change func(*Config)) *sim {
	tb.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s := &sim{
		Script: partitiontest.New(tb), tb: tb, cfg: cfg,
		committed: Progress{Partitions: 1}, newStore: runstore.OpenMemory, nexts: map[string]int64{},
	}
	tb.Cleanup(func() {
		if s.store != nil {
			s.check(s.store.Close())
		}
	})
	return s
}

func (s *sim) check(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

// open opens the partition as a process does that starts: on the folder of the last one, or on a
// new one, from what is committed.
func (s *sim) open(newFolder bool) {
	s.tb.Helper()
	if s.nextLimit != nil {
		s.cfg.RecordLimit = s.nextLimit()
	}
	if newFolder || s.store == nil {
		if s.store != nil {
			s.check(s.store.Close())
		}
		store, err := s.newStore()
		s.check(err)
		s.store = store
		_, err = store.Prepare("topic", time.Hour, s.Now)
		s.check(err)
	}
	var entries []runstore.Entry
	for _, m := range s.runs {
		e, err := runstore.EntryOf(m)
		s.check(err)
		entries = append(entries, e)
	}
	s.check(s.store.Apply(entries, s.Now))
	part, report, err := Open(0, s.cfg, s.Topics, s.store, s.committed, 0)
	s.check(err)
	s.part, s.read, s.inRoom = part, int(report.Progress.Committed), s.endlessRoom()
	for s.part.Stats().Paused {
		s.commit(true)
		s.read = int(s.part.Stats().Next)
	}
	if report.FromRecord {
		s.committed = report.Progress
	}
}

// openGap has the partition go on behind events that are gone.
func (s *sim) openGap(offset int) {
	s.tb.Helper()
	s.check(s.part.openGap(int64(offset), 0))
	for s.part.Stats().Paused {
		s.commit(true)
	}
	s.read = offset
}

// feed gives the partition up to n more events.
func (s *sim) feed(n int) {
	s.tb.Helper()
	for ; n > 0 && s.read < len(s.Events); n-- {
		m := *s.Events[s.read]
		s.read++
		m.Key, m.Value = bytes.Clone(m.Key), bytes.Clone(m.Value)
		m.Headers = slices.Clone(m.Headers)
		for i := range m.Headers {
			m.Headers[i].Value = bytes.Clone(m.Headers[i].Value)
		}
		s.process(&m)
		// What the partition keeps must be its own: a client uses the bytes again.
		scribble(m.Key)
		scribble(m.Value)
		for i := range m.Headers {
			scribble(m.Headers[i].Value)
		}
	}
}

// process hands over a record as the session does.
func (s *sim) process(m *kgo.Record) {
	s.tb.Helper()
	taken, _, err := s.part.Process([]*kgo.Record{m}, s.Now, s.inRoom)
	s.check(err)
	if taken != 1 {
		s.tb.Fatalf("the record at %d is not taken", m.Offset)
	}
}

// isFull reports whether the next transaction is to be committed before anything is processed.
func (s *sim) isFull() bool {
	s.tb.Helper()
	room := NewRoom(1)
	_, _, err := s.part.Process(nil, s.Now, room)
	s.check(err)
	s.inRoom = s.endlessRoom()
	s.part.enter(s.inRoom)
	return room.Full()
}

// endlessRoom is never full: a test says when it commits.
func (s *sim) endlessRoom() *Room {
	r := NewRoom(1)
	r.endless = true
	if s.room != 0 {
		r.checkpoints.Store(int64(s.room))
	}
	return r
}

func scribble(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}

// commit ends a transaction, where there is a reason for one (session.transact). Unless told, the process learns of it.
func (s *sim) commit(readable bool) {
	s.tb.Helper()
	s.part.clock.logEnd, s.part.clock.logEndAt = int64(len(s.Events)), s.Now
	if s.cuts {
		s.check(CutLargest([]*Processor{s.part}, s.Now))
	}
	b, err := s.part.Collect(Cycle{Now: s.Now, LogEnd: -1, Room: s.inRoom, Stopping: s.stopping})
	s.check(err)
	s.inRoom = s.endlessRoom()
	s.reads, s.differing = b.Counts.Reads, append(s.differing, b.Differing...)
	if !b.Changed {
		s.check(s.part.Unload(s.Now))
		return
	}
	for _, o := range b.Outputs {
		m := *o.Record
		if m.Topic == s.Topics.Runs {
			m.Offset, m.Timestamp = int64(len(s.runs)), s.Now
			if most := s.cfg.RecordLimit + 4<<10; len(m.Value) > most {
				s.tb.Errorf("the record of %s has %d bytes", m.Key, len(m.Value))
			}
			o.Record.Offset, o.Record.Timestamp = m.Offset, m.Timestamp
			s.runs = append(s.runs, &m)
			if o.entry.Metadata != nil {
				s.nexts[string(m.Key)] = o.entry.Metadata.Next
			}
		} else {
			s.other = append(s.other, &m)
		}
		if m.Topic == s.Topics.Snapshots {
			s.noteSnapshot(&m)
		}
	}
	if b.Progress.Committed < s.committed.Committed || b.Progress.Processed < s.committed.Processed {
		s.tb.Fatalf("position went back from %+v to %+v", s.committed, b.Progress)
	}
	pos, err := ParseProgress(b.Progress.Committed, b.Progress.Metadata(), 1)
	s.check(err)
	s.committed = pos
	if readable {
		s.check(s.part.Committed(b, s.Now))
	}
}

// noteSnapshot demands that no snapshot replaces one of a later run.
func (s *sim) noteSnapshot(m *kgo.Record) {
	s.tb.Helper()
	key := string(m.Key)
	if m.Value == nil {
		delete(s.nexts, key)
		return
	}
	parts, err := record.SplitKey(key)
	s.check(err)
	run, err := record.RunKey(parts[0], parts[1], header(m, record.HeaderRunID))
	s.check(err)
	if s.nexts[run] < s.nexts[key] {
		s.tb.Errorf("%s of %s replaces that of a later run", key, run)
	}
	s.nexts[key] = s.nexts[run]
}

// all feeds everything in one batch and commits it, with what awaits its time.
func (s *sim) all() {
	s.tb.Helper()
	if s.part == nil {
		s.open(false)
	}
	s.feed(len(s.Events))
	s.stopping = true
	s.commit(true)
	s.stopping = false
}

// latest are the latest run records by run id.
func (s *sim) latest() map[string]*record.Run { return partitiontest.Latest(s.tb, s.runs) }

func (s *sim) run(id string) *record.Run {
	s.tb.Helper()
	for _, m := range slices.Backward(s.runs) {
		if partitiontest.IsDetail(m) {
			continue
		}
		parts, err := record.SplitKey(string(m.Key))
		s.check(err)
		if len(parts) < 3 || parts[2] != id {
			continue
		}
		if m.Value == nil {
			break
		}
		r, err := record.DecodeRun(m.Value)
		s.check(err)
		return r
	}
	s.tb.Fatalf("there is no record of run %q; there are %v", id, keysOf(s.latest()))
	return nil
}

// letters are the dead letters as "offset reason".
func (s *sim) letters() []string { return partitiontest.Letters(s.Topics.DeadLetters, s.other) }

// snapshots are the latest snapshots by key.
func (s *sim) snapshots() map[string]*kgo.Record {
	out := map[string]*kgo.Record{}
	for _, m := range s.other {
		if m.Topic == s.Topics.Snapshots {
			out[string(m.Key)] = m
			if m.Value == nil {
				delete(out, string(m.Key))
			}
		}
	}
	return out
}

// history restores a run as a reader does: out of records alone.
func (s *sim) history(id string) (messages, state string) {
	s.tb.Helper()
	records := s.latest()
	fresh, err := newProcessor(0, s.cfg, s.Topics, s.store, s.committed)
	s.check(err)
	r := records[id]
	t, err := fresh.thread("acme/"+r.ThreadID, "acme", r.ThreadID)
	s.check(err)
	h, err := t.History(id)
	s.check(err)
	text, err := json.Marshal(h.Messages)
	s.check(err)
	return string(text), string(h.State)
}

func keysOf[V any](m map[string]V) []string {
	out := []string{}
	for k := range m {
		out = append(out, k)
	}
	return out
}

// What tests send.
var (
	started          = partitiontest.Started
	finished         = partitiontest.Finished
	text             = partitiontest.Text
	custom           = partitiontest.Custom
	userMessage      = partitiontest.UserMessage
	assistantMessage = partitiontest.AssistantMessage
	seq              = partitiontest.Seq
	header           = kafkatest.Header
)
