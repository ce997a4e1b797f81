package partition

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Source is a record of skein.events that is folded without Kafka.
type Source struct {
	Headers record.Headers
	Value   []byte
	// At is the Kafka record's time. It counts if an event has no timestamp.
	At time.Time
}

// Refusal names a source that became a dead letter, and the reason.
type Refusal struct {
	Source         int // its index
	Reason, Detail string
}

// Offline folds the records of one thread in memory, with the same code as the stage. Positions are 0:0, 0:1 and so on.
// It returns the last record of each run: first ended runs in the order of their ends, then the others by start. The
// record of an open run is a checkpoint.
func Offline(cfg Config, tenant, thread string, sources []Source) (runs []*record.Run, refused []Refusal, err error) {
	key, err := record.ThreadKey(tenant, thread)
	if err != nil {
		return nil, nil, fmt.Errorf("folding offline: %w", err)
	}
	store, err := runstore.OpenMemory()
	if err != nil {
		return nil, nil, fmt.Errorf("folding offline: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	topics := kafka.Config{}.Topics()
	p, err := newProcessor(0, cfg, topics, store, Progress{Partitions: 1})
	if err != nil {
		return nil, nil, fmt.Errorf("folding offline: %w", err)
	}
	var now time.Time
	for i, s := range sources {
		if s.At.After(now) {
			now = s.At
		}
		if err := p.process(&kgo.Record{
			Topic: topics.Events, Offset: int64(i), Timestamp: s.At,
			Key: []byte(key), Value: s.Value, Headers: kafka.Headers(s.Headers),
		}, now); err != nil {
			return nil, nil, fmt.Errorf("folding offline: %w", err)
		}
	}
	for r := range p.runs.changed {
		r.due = true
	}
	p.room.expiries.Store(math.MaxInt64) // there is one transaction only
	b, err := p.collect(now)
	if err != nil {
		return nil, nil, fmt.Errorf("folding offline: %w", err)
	}
	return sortOffline(b.Outputs, topics)
}

// sortOffline returns the run records and the dead letters among the outputs.
func sortOffline(outputs []Output, topics kafka.Topics) (runs []*record.Run, refused []Refusal, err error) {
	last := map[string]int{} // by record key, in runs
	for _, o := range outputs {
		switch o.Record.Topic {
		case topics.Runs:
			key := string(o.entry.Key)
			if key == "" { // a progress record
				continue
			}
			r, err := record.DecodeRun(o.Record.Value)
			if err != nil {
				return nil, nil, fmt.Errorf("folding offline: %w", err)
			}
			if i, ok := last[key]; ok { // abandoned, then reopened
				runs[i] = r
				continue
			}
			last[key] = len(runs)
			runs = append(runs, r)
		case topics.DeadLetters:
			var l Refusal
			for _, h := range o.Record.Headers {
				switch h.Key {
				case record.HeaderReason:
					l.Reason = string(h.Value)
				case record.HeaderDetail:
					l.Detail = string(h.Value)
				case record.HeaderPosition:
					at, err := record.ParsePosition(string(h.Value))
					if err != nil {
						return nil, nil, fmt.Errorf("folding offline: %w", err)
					}
					l.Source = int(at.Offset)
				}
			}
			refused = append(refused, l)
		}
	}
	return runs, refused, nil
}
