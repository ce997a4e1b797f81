package partition

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/record"
)

// snapshotValues are the latest snapshots' bytes by key.
func (s *sim) snapshotValues() map[string]string {
	out := map[string]string{}
	for key, m := range s.snapshots() {
		out[key] = string(m.Value)
	}
	return out
}

// tombstones are the keys of the tombstones on skein.runs and skein.snapshots, in order, but for those of details.
func tombstones(all ...*kgo.Record) []string {
	out := []string{}
	for _, m := range all {
		if m.Value == nil && !partitiontest.IsDetail(m) {
			out = append(out, string(m.Key))
		}
	}
	return out
}

// keysWith are the keys of those values that hold the text.
func keysWith(text string, all ...*kgo.Record) []string {
	out := []string{}
	for _, m := range all {
		if strings.Contains(string(m.Value), text) {
			out = append(out, string(m.Key))
		}
	}
	return out
}

func TestPartition_ErasesAThread(t *testing.T) {
	s := newSim(t, nil)
	s.Turn("r1", "secret")
	s.Turn("r2", "secret2")
	s.Send("other", "o", started("o"))
	s.Send("other", "o", text("m", "stays"))
	s.Send("other", "o", finished("o"))
	s.all()
	s.Erase("t") // 9
	s.all()
	equal(t, "tombstones of runs", tombstones(s.runs...), []string{"acme/t/r1", "acme/t/r2"})
	equal(t, "tombstones of snapshots", tombstones(s.other...), []string{"acme/t/r1/MESSAGES_SNAPSHOT", "acme/t/r1/STATE_SNAPSHOT"})
	equal(t, "erasure record", s.values()["acme/t"], `{"below":10}`)
	equal(t, "runs that stay", keysOf(s.latest()), []string{"o"})
	equal(t, "snapshots that stay", len(s.snapshots()), 2)
	equal(t, "dead letters", s.letters(), []string{})
	equal(t, "C", s.committed.Committed, int64(10))
	equal(t, "position", partitiontest.Told(t, s.runs), []int64{9, 10})
	if n := len(s.runs); string(s.runs[n-2].Key) != "acme/t" {
		t.Error("the erasure record does not lie behind the tombstones")
	}

	// Of a thread without runs there may be dead letters.
	s.Send("lone", "", text("m", "of no run"))
	s.Erase("t")    // 11
	s.Erase("lone") // 12
	before := len(s.runs)
	s.all()
	equal(t, "dead letters", s.letters(), []string{"0:10 no-run"})
	equal(t, "records of erasures of threads without runs, their details, and the position", len(s.runs), before+3+4)
	equal(t, "erasure record of a thread erased before", s.values()["acme/t"], `{"below":12}`)
	equal(t, "erasure record of a thread of dead letters", s.values()["acme/lone"], `{"below":13}`)

	// Neither does anything say that there were none of one that never was: its receipt is the same record.
	s.Erase("never") // 13
	before = len(s.runs)
	s.all()
	equal(t, "records of the erasure of a thread that never was, its details, and the position", len(s.runs), before+2+2)
	equal(t, "erasure record of it", s.values()["acme/never"], `{"below":14}`)
	s.Send("never", "n", started("n"))
	s.Send("never", "n", finished("n"))
	s.open(true)
	s.all()
	equal(t, "a run that comes behind it", s.run("n").Status, record.StatusFinished)
}

// A new life begins at nothing: ids come again, histories and parents of the old one are not there.
func TestPartition_AnErasedThreadStartsAnew(t *testing.T) {
	for _, batches := range []string{"one transaction", "one each", "a restart in between", "an empty folder in between"} {
		t.Run(batches, func(t *testing.T) {
			s := newSim(t, nil)
			s.open(false)
			step := func() {
				switch batches {
				case "one transaction":
					return
				case "a restart in between", "an empty folder in between":
					s.all()
					s.open(batches != "a restart in between")
				default:
					s.all()
				}
			}
			s.Turn("r1", "secret")
			step()
			s.Erase("t")
			step()
			s.Send("t", "r1", `{"type":"RUN_STARTED","threadId":"t","runId":"r1","parentRunId":"r0"}`)
			s.Send("t", "r1", text("m", "new"))
			s.Send("t", "r1", finished("r1"))
			step()
			s.Turn("r2", "m2")
			s.all()
			r1, r2 := s.run("r1"), s.run("r2")
			equal(t, "parent of r1", r1.ParentBy, record.ParentNone)
			equal(t, "first event of r1", r1.Raw.First, int64(4))
			equal(t, "parent of r2", r2.ParentRunID, "r1")
			messages, _ := s.history("r2")
			equal(t, "history", messages, `[`+assistantMessage("m", "new")+`,`+assistantMessage("m2", "answer m2")+`]`)
			equal(t, "snapshot", string(s.snapshots()["acme/t/r1/MESSAGES_SNAPSHOT"].Value), `{"type":"MESSAGES_SNAPSHOT","messages":`+messages+`}`)
			if batches == "one transaction" {
				equal(t, "written of the old life", keysWith("secret", append(s.runs, s.other...)...), []string{})
			}
		})
	}
}

// A run of another thread holds the committed offset below the erasure, so that what is erased is read again.
func TestPartition_ReadsNothingErasedAgain(t *testing.T) {
	for name, c := range map[string]struct{ readable, newFolder bool }{
		"killed after it":                            {true, false},
		"killed after it, the folder lost":           {true, true},
		"killed between commit and store":            {false, false},
		"killed between commit and store, both lost": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, nil)
			s.Send("other", "o", started("o")) // 0: holds C
			s.Turn("r1", "secret")             // 1 to 3
			s.Send("t", "r2", started("r2"))   // 4: open
			s.Send("t", "r2", text("n", "secret"))
			s.Send("t", "r2", custom("x"))
			s.open(false)
			s.feed(len(s.Events))
			s.commit(true)
			s.Erase("t") // 7
			s.feed(len(s.Events))
			s.commit(c.readable)
			equal(t, "C", s.committed.Committed, int64(0))
			equal(t, "P", s.committed.Processed, int64(8))
			for n := range len(s.Events) + 1 {
				s.open(c.newFolder)
				s.feed(n)
				s.commit(false)
				equal(t, fmt.Sprintf("runs after a kill %d events on", n), keysOf(s.latest()), []string{"o"})
				if len(s.snapshots()) != 0 {
					t.Errorf("there are snapshots again after %d events", n)
				}
			}
			s.open(c.newFolder)
			s.feed(len(s.Events))
			s.Now = s.Now.Add(s.cfg.CheckpointMax)
			s.commit(false)
			equal(t, "runs after a checkpoint", keysOf(s.latest()), []string{"o"})
			s.Send("t", "r2", text("n", "late")) // 8: its agent knows nothing of the erasure
			s.Send("t", "", finished("r2"))
			s.open(c.newFolder)
			s.all()
			r2 := s.run("r2")
			equal(t, "first event", r2.Raw.First, int64(8))
			equal(t, "events", r2.Raw.Events, int64(2))
			messages, _ := s.history("r2")
			equal(t, "history", messages, `[`+assistantMessage("n", "late")+`]`)
			equal(t, "dead letters", s.letters(), []string{})
		})
	}
}

// An open run is dropped: it neither holds the commit nor is it written or abandoned later.
func TestPartition_DropsOpenRunsOfAnErasedThread(t *testing.T) {
	for _, hasRecord := range []bool{false, true} {
		t.Run(fmt.Sprintf("recorded %v", hasRecord), func(t *testing.T) {
			s := newSim(t, nil)
			s.Send("t", "r", started("r"))
			s.Send("t", "r", text("m", "secret"))
			s.Input("t", "pending", `{"threadId":"t","runId":"pending","messages":[`+userMessage("u", "secret")+`],"tools":[],"context":[]}`)
			s.all()
			want := []string{}
			if hasRecord {
				s.Now = s.Now.Add(s.cfg.CheckpointMax)
				s.commit(true)
			}
			for _, id := range []string{"r", "pending"} { // the second start asks for a record of both
				if s.latest()[id] != nil {
					want = append(want, "acme/t/"+id)
				}
			}
			s.Erase("t")
			s.all()
			equal(t, "tombstones", tombstones(s.runs...), want)
			equal(t, "C", s.committed.Committed, int64(len(s.Events)))
			s.Now = s.Now.Add(2 * s.cfg.IdleLimit)
			s.Send("other", "o", started("o"))
			s.all()
			equal(t, "runs", slices.DeleteFunc(keysOf(s.latest()), func(id string) bool { return id == "o" }), []string{})
		})
	}
}

func TestPartition_AnErasureIsOfOneTenantsThread(t *testing.T) {
	s := newSim(t, nil)
	for _, m := range []*kgo.Record{s.Send("t", "r", started("r")), s.Send("t", "r", finished("r"))} {
		other := *m
		other.Key = []byte("umbrella/t")
		s.Append(&other)
	}
	s.Send("t/r", "r", started("r")) // its key begins like those of the runs of t would, were it not escaped
	s.all()
	s.Erase("t")
	s.all()
	equal(t, "tombstones", tombstones(s.runs...), []string{"acme/t/r"})
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	values := s.values()
	for _, key := range []string{"umbrella/t/r", "acme/t%2Fr/r"} {
		if values[key] == "" {
			t.Errorf("%s is gone", key)
		}
	}
}

// A thread of ten thousand runs is one transaction, of tombstones of some hundred bytes each.
func TestPartition_ErasesALongThreadAtOnce(t *testing.T) {
	const runs = 10_000
	s := newSim(t, nil)
	for i := range runs {
		id := fmt.Sprintf("r%d", i)
		s.Send("t", id, started(id))
		s.Send("t", id, finished(id))
	}
	s.all()
	s.Erase("t")
	s.feed(1)
	b, err := s.part.collect(s.Now)
	s.check(err)
	size := 0
	for _, o := range b.Outputs {
		size += len(o.Record.Key) + len(o.Record.Value) + 100 // headers and frame
	}
	t.Logf("%d records of %d bytes in all", len(b.Outputs), size)
	if len(b.Outputs) < runs || size > 4<<20 {
		t.Errorf("%d records of %d bytes", len(b.Outputs), size)
	}
}
