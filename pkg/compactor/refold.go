package compactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// refold answers what may be a request to refold a thread: it reads the thread's raw events and has its records written
// again, in the transaction of this cycle, which is then full. An error ends the session, as that of any read.
func (s *session) refold(ctx context.Context, next *stretch) error {
	a := next.of
	r, err := a.part.BeginRefold(next.records[0], s.now())
	if err != nil {
		return err
	}
	next.take(1)
	next.stop = partition.StopEnd
	if r == nil {
		return nil
	}
	s.room.Fill()
	written := 0
	if r.Refused == nil {
		raw, start, err := s.readThread(ctx, a.id, r)
		if err != nil {
			return fmt.Errorf("refolding a thread of partition %d: %w", a.id, err)
		}
		if r.Refused == nil {
			if written, r.Refused, err = a.part.FinishRefold(r, raw, start); err != nil {
				return fmt.Errorf("refolding a thread of partition %d: %w", a.id, err)
			}
		}
	}
	at := []any{"tenant", r.Tenant, "thread_id", r.ThreadID, "partition", a.id, "offset", r.Offset}
	if r.Refused != nil {
		s.logger.Warn("refold request was refused", append(at, "error", r.Refused)...)
	} else {
		s.logger.Info("thread was refolded", append(at, "records", written)...)
	}
	return nil
}

// readThread reads the thread's raw events, and asks for the first offset that is there.
func (s *session) readThread(ctx context.Context, id int32, r *partition.RefoldRequest) (raw []*kgo.Record, start int64, err error) {
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	held, err := kafka.Spans(asking, s.admin, s.topics.Events)
	if err != nil {
		return nil, 0, err
	}
	start = held[id].Start
	spans := slices.Clone(r.Ranges)
	for i := range spans {
		spans[i].Start = max(spans[i].Start, start)
	}
	size, scanned := 0, 0
	for m, err := range kafka.ScanPartition(ctx, s.kafka, s.topics.Events, id, spans) {
		if errors.Is(err, record.ErrUnknownVersion) {
			r.Refused = err
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		n := len(m.Key) + len(m.Value)
		if string(m.Key) == r.Key {
			raw, size = append(raw, ownCopy(m)), size+n
		}
		if scanned += n; size > s.cfg.RefoldBytes || scanned > s.cfg.refoldScanBytes {
			r.Refused = partition.ErrThreadLarge
			return nil, 0, nil
		}
	}
	return raw, start, nil
}

// ownCopy copies a record, so that it does not keep the whole batch in memory that it came with.
func ownCopy(m *kgo.Record) *kgo.Record {
	c := *m
	c.Key, c.Value, c.Headers = bytes.Clone(m.Key), bytes.Clone(m.Value), slices.Clone(m.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = bytes.Clone(c.Headers[i].Value)
	}
	return &c
}
