package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// endReader reads skein.events for all calls that wait for the end of a run, on the partitions where there are such calls. One client serves all:
// what it holds of answers, some 64 MiB at the worst (kafka.OneAnswer), is held once, however many calls wait. A process with agents has a
// cancelReader beside it, which holds as much.
type endReader struct {
	topic  string
	client *kgo.Client
	stop   context.CancelFunc
	over   chan struct{}

	mu         sync.Mutex
	partitions map[int32]*endPartition
}

// endPartition is a partition with calls that wait. from is where it began to be read, -1 until then.
type endPartition struct {
	waiters map[*endWaiter]bool
	from    int64
}

// endWaiter is a call that waits for the first terminal event of a run behind an offset.
type endWaiter struct {
	target target
	// behind is the offset, -1 while it is not known; early is the latest end that came until then.
	behind int64
	early  *runEnd
	ended  chan runEnd // has room for one
}

// runEnd is a terminal event of a run, or why it cannot be known.
type runEnd struct {
	runID     string
	at        record.Position
	status    record.Status
	synthetic bool
	err       error
}

func newEndReader(cfg kafka.Config) (*endReader, error) {
	topic := cfg.Topics().Events
	limits, err := kafka.OneAnswer()
	if err != nil {
		return nil, fmt.Errorf("making reader of ends: %w", err)
	}
	client, err := kafka.NewDirectReader(cfg, topic, nil, limits...)
	if err != nil {
		return nil, fmt.Errorf("making reader of ends: %w", err)
	}
	e := &endReader{topic: topic, client: client, over: make(chan struct{}), partitions: map[int32]*endPartition{}}
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	go e.run(ctx)
	return e, nil
}

func (e *endReader) close() {
	e.stop()
	<-e.over
	e.client.Close()
}

// wait has a call wait for the end of its run. Call it before the request to stop the run is written, then follow with where that lies, and leave
// in the end. So no end is missed: where the partition is read already, the reader has not come further than the request; where it is not, it
// begins right behind the request.
func (e *endReader) wait(t target) *endWaiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.partitions[t.partition]
	if p == nil {
		p = &endPartition{waiters: map[*endWaiter]bool{}, from: -1}
		e.partitions[t.partition] = p
	}
	w := &endWaiter{target: t, behind: -1, ended: make(chan runEnd, 1)}
	p.waiters[w] = true
	return w
}

// follow says behind which offset the end counts.
func (e *endReader) follow(w *endWaiter, behind int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.behind = behind
	if w.early != nil {
		w.end(*w.early)
	}
	p, id := e.partitions[w.target.partition], w.target.partition
	switch next := behind + 1; {
	case p.from < 0:
		p.from = next
	case p.from > next: // two requests were written at the same time, and the later one was acknowledged first
		p.from = next
		e.client.RemoveConsumePartitions(map[string][]int32{e.topic: {id}})
	default:
		return
	}
	e.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{e.topic: {id: kgo.NoResetOffset().At(p.from)}})
}

// leave ends a wait. A partition where nobody waits is not read on.
func (e *endReader) leave(w *endWaiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := w.target.partition
	p := e.partitions[id]
	if delete(p.waiters, w); len(p.waiters) > 0 {
		return
	}
	delete(e.partitions, id)
	e.client.RemoveConsumePartitions(map[string][]int32{e.topic: {id}})
}

// end is told of an end of the run, or of an error.
func (w *endWaiter) end(r runEnd) {
	switch {
	case r.err == nil && w.behind < 0:
		w.early = &r
		return
	case r.err == nil && r.at.Offset <= w.behind:
		return
	}
	select {
	case w.ended <- r:
	default: // it was told of one before
	}
}

func (e *endReader) run(ctx context.Context) {
	defer close(e.over)
	for ctx.Err() == nil {
		fetches := e.client.PollFetches(ctx)
		fetches.EachRecord(e.take)
		for _, f := range fetches.Errors() {
			if ctx.Err() != nil {
				return
			}
			if !errors.Is(f.Err, kafka.ErrUnpackLater) {
				e.fail(fmt.Errorf("%w: waiting for the run's end: %w", ErrUnavailable, f.Err))
			}
		}
	}
}

// fail tells all calls of an error. The client knows the topic anew after it: it may have been made again.
func (e *endReader) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.partitions {
		for w := range p.waiters {
			w.end(runEnd{err: err})
		}
		p.from = -1
	}
	e.client.PurgeTopicsFromConsuming(e.topic)
}

// take looks at a record for those that wait for an end of its thread.
func (e *endReader) take(m *kgo.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.partitions[m.Partition]
	if p == nil {
		return
	}
	var found *runEnd
	for w := range p.waiters {
		if w.target.key != string(m.Key) {
			continue
		}
		if found == nil {
			found = endOf(m)
		}
		if found.err != nil || found.status != "" && found.runID == w.target.run {
			w.end(*found)
		}
	}
}
