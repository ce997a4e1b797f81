package compactor

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// What tests send.
var (
	started          = partitiontest.Started
	finished         = partitiontest.Finished
	text             = partitiontest.Text
	custom           = partitiontest.Custom
	assistantMessage = partitiontest.AssistantMessage
	header           = kafkatest.Header
)

// sim is a log of skein.events and a processor that folds it without Kafka: what the stage is held to.
type sim struct {
	*partitiontest.Script
	part  *partition.Processor
	runs  []*kgo.Record // committed records of skein.runs
	other []*kgo.Record // of the other topics
}

func newSim(tb testing.TB, change func(*Config)) *sim {
	tb.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s := &sim{Script: partitiontest.New(tb)}
	store, err := runstore.OpenMemory()
	s.check(err)
	tb.Cleanup(func() { s.check(store.Close()) })
	s.part, _, err = partition.Open(0, cfg.Config, s.Topics, store, partition.Progress{Partitions: 1}, 0)
	s.check(err)
	return s
}

func (s *sim) check(err error) {
	s.TB.Helper()
	if err != nil {
		s.TB.Fatal(err)
	}
}

// next is the next record that the processor takes.
func (s *sim) next() int64 { return s.part.Stats().Next }

// feed has the processor take all that it has not taken.
func (s *sim) feed() {
	s.TB.Helper()
	for room := partition.NewRoom(1); s.next() < int64(len(s.Events)); {
		_, _, err := s.part.Process(s.Events[s.next():], s.Now, room)
		s.check(err)
		if room.Full() {
			s.commit()
			room = partition.NewRoom(1)
		}
	}
}

func (s *sim) commit() {
	s.TB.Helper()
	e, err := s.part.Collect(partition.Cycle{Now: s.Now, LogEnd: -1, Room: partition.NewRoom(1), Stopping: true})
	s.check(err)
	s.committed(e)
}

func (s *sim) committed(e partition.Effects) {
	s.TB.Helper()
	for _, o := range e.Outputs {
		to := &s.other
		if o.Record.Topic == s.Topics.Runs {
			to = &s.runs
		}
		o.Record.Offset, o.Record.Timestamp = int64(len(*to)), s.Now
		*to = append(*to, o.Record)
	}
	s.check(s.part.Committed(e, s.Now))
}

// all folds the whole log and commits it.
func (s *sim) all() {
	s.TB.Helper()
	s.feed()
	s.commit()
}

// latest are the latest run records by run id.
func (s *sim) latest() map[string]*record.Run { return partitiontest.Latest(s.TB, s.runs) }

// letters are the dead letters as "offset reason".
func (s *sim) letters() []string { return partitiontest.Letters(s.Topics.DeadLetters, s.other) }

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func newRand(t *testing.T) *rand.Rand {
	return rand.New(rand.NewPCG(seedtest.New(t), 1))
}
