package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// state is the progress of a copy. The last record on a topic of the new set counts; each is in the transaction of its copies.
type state struct {
	// TopicID is the id of the old skein.events.
	TopicID string `json:"topicId"`
	// Rooms has the number of offsets reserved at the start of each new partition for raw events that are gone; nil before makeRoom.
	Rooms map[int32]int64 `json:"rooms,omitempty"`
	// Start has the offsets at which the copy of raw events began, Next the next offset of each topic, both by the old set's partitions.
	Start map[int32]int64            `json:"start"`
	Next  map[string]map[int32]int64 `json:"next"`
	Done  bool                       `json:"done,omitempty"`
}

// The topics in state.Next.
const (
	nextEvents      = "events"
	nextRuns        = "runs"
	nextSnapshots   = "snapshots"
	nextDeadLetters = "deadLetters"
)

func (s *state) clone() *state {
	c := *s
	c.Rooms, c.Start = maps.Clone(s.Rooms), maps.Clone(s.Start)
	c.Next = make(map[string]map[int32]int64, len(s.Next))
	for topic, next := range s.Next {
		c.Next[topic] = maps.Clone(next)
	}
	return &c
}

// at returns the next offset of a partition of a topic; 0 before its copy has begun.
func (s *state) at(topic string, p int32) int64 { return s.Next[topic][p] }

func (s *state) set(topic string, p int32, next int64) {
	if s.Next[topic] == nil {
		s.Next[topic] = map[int32]int64{}
	}
	s.Next[topic][p] = next
}

// begun reports whether raw events were copied.
func (s *state) begun() bool { return !maps.Equal(s.Start, s.Next[nextEvents]) }

// stateTopic is the name of the topic that holds a new set's state.
func stateTopic(to kafka.Config) string { return to.TopicPrefix + "skein.migration" }

// makeStateTopic makes the topic of the state, unless it exists.
func makeStateTopic(ctx context.Context, adm *kadm.Client, to kafka.Config, replication int16) error {
	policy := "compact"
	r, err := adm.CreateTopic(ctx, 1, replication, map[string]*string{"cleanup.policy": &policy}, stateTopic(to))
	if err == nil {
		err = r.Err
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("making topic %s: %w", stateTopic(to), err)
	}
	// Brokers learn of a topic one after another.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ends, err := adm.ListEndOffsets(ctx, stateTopic(to))
		if err == nil {
			err = ends.Error()
		}
		if err == nil && len(ends[stateTopic(to)]) == 1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for topic %s: %w", stateTopic(to), errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// readState reads the last state; nil if there is none.
func readState(ctx context.Context, adm *kadm.Client, to kafka.Config) (*state, error) {
	spans, err := kafka.Spans(ctx, adm, stateTopic(to))
	if err != nil {
		return nil, err
	}
	var last *state
	for m, err := range kafka.Scan(ctx, to, stateTopic(to), spans) {
		if err != nil {
			return nil, fmt.Errorf("reading how far the copy is: %w", err)
		}
		last = new(state)
		if err := json.Unmarshal(m.Value, last); err != nil {
			return nil, fmt.Errorf("reading how far the copy is: %w", err)
		}
	}
	return last, nil
}

// commit writes records and the state after them in one transaction.
func (g *migration) commit(ctx context.Context, s *state, records []*kgo.Record) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding how far the copy is: %w", err)
	}
	records = append(records, &kgo.Record{Topic: stateTopic(g.to), Key: []byte("migration"), Value: text})
	if err := g.txn.BeginTransaction(); err != nil {
		return fmt.Errorf("beginning transaction: %w", err)
	}
	// After an error the transaction stays open. The next call initialises the producer id and so aborts it; nobody reads the new set
	// before.
	if err := g.txn.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return overtaken(kafka.Unacknowledged(err))
	}
	ending, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := g.txn.EndTransaction(ending, kgo.TryCommit); err != nil {
		return fmt.Errorf("ending a transaction, which may be committed or not; the next call tells: %w", overtaken(err))
	}
	g.state = s
	return nil
}

// ErrOvertaken means that another copy into the same topic set has begun meanwhile.
var ErrOvertaken = errors.New("another copy into this topic set has begun")

func overtaken(err error) error {
	if kafka.IsFenced(err) {
		return fmt.Errorf("%w: %w", ErrOvertaken, err)
	}
	return err
}
