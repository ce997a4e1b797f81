package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	// inFlight bounds the bytes that are read and not acknowledged; the largest event is a quarter of it.
	inFlight = 4 * kafka.MaxValueBytes
	// flushWithin is how long a stopped replay waits for acknowledgements.
	flushWithin = kafka.DeliveryTimeout + 5*time.Second
	// erasuresEvery is the least time between two reads of erasures during a replay. It bounds how long a replay may still
	// publish events of an erased thread.
	erasuresEvery = time.Minute
)

// Done is the progress of a replay.
type Done struct {
	// Published is the number of acknowledged records.
	Published int `json:"published"`
	// Next is, by partition, the offset from which another replay continues: all selected records before it were published.
	Next []record.Position `json:"next"`
}

// Run publishes the planned records, without those erased since, in offset order within a partition and by time across
// partitions. Each record has the key and value of its original, the allowed headers, the original's position
// (HeaderReplayedFrom) and the time of its publication. Records of one key go to one partition. Done is valid with an
// error as well.
func (p *Plan) Run(ctx context.Context) (Done, error) {
	if err := p.lookForErasures(ctx); err != nil {
		return Done{}, err
	}
	// The brokers refuse a whole batch that is too large.
	cl, err := kafka.NewProducer(p.cfg, kgo.MaxBufferedBytes(inFlight), kgo.ProducerBatchMaxBytes(p.most))
	if err != nil {
		return Done{}, err
	}
	defer cl.Close()
	topic := p.cfg.Topics().Events
	s := &sender{plan: p, client: cl, clock: clock{pace: p.options.Pace}, next: map[int32]int64{}, looked: time.Now()}
	for partition, span := range p.spans {
		s.next[partition] = span.Start
	}
	err = s.send(ctx, kafka.ScanByTime(ctx, p.cfg, topic, p.spans))
	if err == nil && p.options.Follow {
		err = s.send(ctx, kafka.Follow(ctx, p.cfg, topic, p.ends))
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	return s.end(errors.Join(err, cl.Flush(ending)))
}

// lookForErasures reads the erasures since skein.runs was read, or since the last call.
func (p *Plan) lookForErasures(ctx context.Context) error {
	adm, err := kafka.NewAdmin(p.cfg)
	if err != nil {
		return err
	}
	defer adm.Close()
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	events, err := p.selected(asking, adm, p.cfg.Topics().Events)
	if err != nil {
		return err
	}
	return p.selection.erasures(ctx, p.cfg, events)
}

// sender publishes records and counts those that are acknowledged.
type sender struct {
	plan   *Plan
	client *kgo.Client
	clock  clock
	looked time.Time // for erasures

	mu        sync.Mutex // next, published and err change as acknowledgements come
	next      map[int32]int64
	failed    map[int32]int64 // the first failed offset by partition
	published int
	err       error
}

// send publishes records until there are no more, or one fails.
func (s *sender) send(ctx context.Context, records iter.Seq2[*kgo.Record, error]) error {
	for m, err := range records {
		if err != nil {
			return err
		}
		taken, _, err := s.plan.selection.takes(m)
		if err != nil {
			return err
		}
		if taken {
			if err := s.clock.wait(ctx, m.Timestamp); err != nil {
				return err
			}
			if taken, err = s.still(ctx, m); err != nil {
				return err
			}
		}
		if taken {
			// Without ctx: the acknowledgements of sent records are awaited, so that Done is exact.
			s.client.Produce(context.WithoutCancel(ctx), s.plan.replayed(m), func(_ *kgo.Record, err error) { s.acknowledged(m, err) })
		}
		s.mu.Lock()
		s.next[m.Partition] = m.Offset + 1
		err = s.err
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// still reports whether a record has not been erased since it was selected. It reads erasures once a minute at most.
func (s *sender) still(ctx context.Context, m *kgo.Record) (bool, error) {
	if time.Since(s.looked) >= erasuresEvery {
		if err := s.plan.lookForErasures(ctx); err != nil {
			return false, err
		}
		s.looked = time.Now()
	}
	return m.Offset >= s.plan.selection.erased[string(m.Key)], nil
}

// replayed returns the record to publish.
func (p *Plan) replayed(m *kgo.Record) *kgo.Record {
	out := &kgo.Record{Topic: p.Topic, Partition: record.Partition(m.Key, p.Partitions), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		if p.options.copies(h.Key) {
			out.Headers = append(out.Headers, h)
		}
	}
	at := record.Position{Partition: m.Partition, Offset: m.Offset}
	out.Headers = append(out.Headers, kgo.RecordHeader{Key: HeaderReplayedFrom, Value: []byte(at.String())})
	return out
}

func (s *sender) acknowledged(m *kgo.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		at := record.Position{Partition: m.Partition, Offset: m.Offset}
		if errors.Is(err, kerr.MessageTooLarge) {
			err = fmt.Errorf("%w: raise max.message.bytes of the topic", err)
		}
		if s.err == nil {
			s.err = fmt.Errorf("publishing %s to %s: %w", at, s.plan.Topic, err)
		}
		if s.failed == nil {
			s.failed = map[int32]int64{}
		}
		if first, ok := s.failed[m.Partition]; !ok || m.Offset < first {
			s.failed[m.Partition] = m.Offset
		}
		return
	}
	s.published++
	if s.published%scanTold == 0 || s.published == s.plan.Records || s.plan.options.Pace != 0 {
		s.plan.options.Progress("replaying", s.published, max(s.published, s.plan.Records))
	}
}

// end returns the progress once nothing is in flight.
func (s *sender) end(err error) (Done, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := Done{Published: s.published, Next: []record.Position{}}
	for _, p := range slices.Sorted(maps.Keys(s.next)) {
		at := s.next[p]
		if first, ok := s.failed[p]; ok {
			at = min(at, first)
		}
		d.Next = append(d.Next, record.Position{Partition: p, Offset: at})
	}
	if s.err != nil {
		err = s.err
	}
	return d, err
}
