package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

	// readOn is how long a partition is read on behind the last call that waited there.
	readOn time.Duration
	// skip is how many records are rather read than left out: to go on elsewhere stops the fetches of all partitions for a moment.
	skip int64

	mu         sync.Mutex
	partitions map[int32]*endPartition
	polls      int64
}

// endPartition is a partition that is read.
type endPartition struct {
	waiters map[*endWaiter]bool
	// from is where it began to be read, -1 until then, and next is behind the last record that was. Since is the poll in which it began:
	// that may give what was fetched before.
	from, next, since int64
	idle              *time.Timer // ends the reading; nil while calls wait
}

// behind returns the least offset behind which an end may lie that a call waits for; -1 where that is not known of each.
func (p *endPartition) behind() int64 {
	least := int64(-1)
	for w := range p.waiters {
		if w.behind < 0 {
			return -1
		}
		if least < 0 || w.behind < least {
			least = w.behind
		}
	}
	return least
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
	e := &endReader{topic: topic, client: client, over: make(chan struct{}), readOn: readOn, skip: 10_000, partitions: map[int32]*endPartition{}}
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
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
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
	id := w.target.partition
	if p := e.partitions[id]; p.from < 0 || p.from > behind+1 { // two requests were written at the same time, and the later one was acknowledged first
		e.read(id, p, behind+1)
	}
	e.ahead(id)
}

// read has the client read a partition from an offset on, wherever it is.
func (e *endReader) read(id int32, p *endPartition, from int64) {
	if p.from >= 0 {
		e.client.RemoveConsumePartitions(map[string][]int32{e.topic: {id}})
	}
	p.from, p.next, p.since = from, from, e.polls
	e.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{e.topic: {id: kgo.NoResetOffset().At(from)}})
}

// ahead leaves out records that no call waits for any more, where there are many: a reader that has fallen behind what is written would
// come too late for each call.
func (e *endReader) ahead(id int32) {
	p := e.partitions[id]
	if behind := p.behind(); p.from >= 0 && behind+1-p.next > e.skip {
		e.read(id, p, behind+1)
	}
}

// leave ends a wait. A partition where nobody waits is read on for a while: most often another call comes soon, and to end and begin stops
// the fetches of all partitions.
func (e *endReader) leave(w *endWaiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := w.target.partition
	p := e.partitions[id]
	if delete(p.waiters, w); len(p.waiters) > 0 {
		e.ahead(id)
		return
	}
	p.idle = time.AfterFunc(e.readOn, func() { e.forget(id, p) })
}

// forget ends the reading of a partition where nobody waits.
func (e *endReader) forget(id int32, p *endPartition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.partitions[id] != p || len(p.waiters) > 0 {
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
		e.mu.Lock()
		e.polls++
		e.mu.Unlock()
		fetches := e.client.PollFetches(ctx)
		fetches.EachRecord(e.take)
		for _, f := range fetches.Errors() {
			if ctx.Err() != nil {
				return
			}
			if !errors.Is(f.Err, kafka.ErrUnpackLater) {
				e.fail(f.Topic, f.Partition, fmt.Errorf("%w: waiting for the run's end: %w", ErrUnavailable, f.Err))
			}
		}
	}
}

// fail tells the calls that wait on a partition of an error; all of them if it is not one partition's. The client knows the topic anew after
// it: it may have been made again.
func (e *endReader) fail(topic string, partition int32, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client.PurgeTopicsFromConsuming(e.topic)
	for id, p := range e.partitions {
		switch from := p.from; {
		case topic == e.topic && partition >= 0 && partition != id:
			if p.from = -1; from >= 0 {
				e.read(id, p, max(p.next, p.behind()+1))
			}
		default:
			p.from = -1
			for w := range p.waiters {
				w.end(runEnd{err: err})
			}
		}
	}
}

// take looks at a record for those that wait for an end of its thread. An event may be large, so it is decoded without the lock: a call that
// comes meanwhile waits for what is behind its request, which is not written yet.
func (e *endReader) take(m *kgo.Record) {
	e.mu.Lock()
	p := e.partitions[m.Partition]
	if p != nil && p.since < e.polls {
		p.next = m.Offset + 1
	}
	wanted := len(p.of(m)) > 0
	e.mu.Unlock()
	if !wanted {
		return
	}
	found := endOf(m)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.partitions[m.Partition].of(m) {
		if found.err != nil || found.status != "" && found.runID == w.target.run {
			w.end(*found)
		}
	}
}

// of returns the calls that wait for an end of a record's thread.
func (p *endPartition) of(m *kgo.Record) (all []*endWaiter) {
	if p == nil {
		return nil
	}
	for w := range p.waiters {
		if w.target.key == string(m.Key) {
			all = append(all, w)
		}
	}
	return all
}
