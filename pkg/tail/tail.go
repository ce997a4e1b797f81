package tail

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	// pollRecords bounds the records of one poll.
	pollRecords = 5_000
	// askWait bounds one request for offsets.
	askWait = 5 * time.Second
	// fetchWait is how long a broker holds a fetch without records. It adds no delay: a broker answers as soon as there is a
	// record.
	fetchWait = time.Second
	// housekeeping is the interval of the checks for partitions without readers and for silent brokers.
	housekeeping = time.Second
)

// Tail reads partitions of skein.events once for all readers of their threads. A process needs one.
type Tail struct {
	cfg       Config
	topic     string
	client    *kgo.Client    // of the fetch loop
	slots     *share.Pool    // for catch-ups; tenants share them
	readers   *kafka.Readers // clients of catch-ups
	metrics   *metrics
	ctx       context.Context
	stop      context.CancelFunc
	ended     chan struct{}
	closing   sync.Once
	starting  sync.WaitGroup
	count     atomic.Int32 // number of partitions; 0 before the first request for it
	answered  atomic.Int64 // time of the last answer to a fetch, in Unix nanoseconds
	recreated atomic.Bool  // the topic was created again

	mu         sync.Mutex
	partitions map[int32]*partition
	questions  map[int32]*question // the latest of each partition
	// opened are partitions with a new ring that the fetch loop does not read yet. Only the loop changes which partitions
	// the client reads, and only between two polls. Otherwise a record polled before a partition was closed and opened
	// again could enter the new ring after a gap.
	opened    []*partition
	interrupt context.CancelFunc // ends the current poll
	away      bool
}

// partition is one partition that the tail reads. The tail drops it once it has no readers for Linger, or cannot be read.
type partition struct {
	id int32
	// ready is closed once ring or err is set.
	ready chan struct{}

	mu   sync.Mutex
	ring *ring
	// filled is the end of the log when the ring was made.
	filled  int64
	readers int
	// toEnd are the readers that have not reached their End. They may reach it through records of other threads.
	toEnd map[*Reader]struct{}
	idle  time.Time // since when there are no readers
	err   error     // why it is no longer read
}

// New returns a tail. It does not connect before its first reader. Close it.
func New(cfg Config) (*Tail, error) {
	t := &Tail{
		cfg: cfg, topic: cfg.Kafka.Topics().Events, metrics: newMetrics(cfg.Registerer),
		ended: make(chan struct{}), partitions: map[int32]*partition{}, questions: map[int32]*question{},
	}
	// Control records are kept, since the log may end with the marker of a transaction.
	limits, err := kafka.LimitUnpacking() // 4 MiB of an answer may unpack to gigabytes
	if err != nil {
		return nil, fmt.Errorf("making tail: %w", err)
	}
	options := append(limits, kgo.KeepControlRecords(), kgo.FetchMaxWait(fetchWait), kgo.FetchMaxPartitionBytes(1<<20),
		kgo.FetchMaxBytes(4<<20),
		kgo.WithHooks(answers{t}))
	t.client, err = kafka.NewDirectReader(cfg.Kafka, t.topic, nil, append(options, cfg.Fetch...)...)
	if err != nil {
		return nil, fmt.Errorf("making tail: %w", err)
	}
	t.slots = share.NewPool(int64(cfg.CatchUps))
	t.readers = kafka.NewReaders(cfg.Kafka, t.topic, cfg.CatchUps, kgo.KeepControlRecords(),
		kgo.FetchMaxPartitionBytes(catchUpFetch), kgo.FetchMaxBytes(catchUpFetch))
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.answered.Store(time.Now().UnixNano())
	go t.run()
	return t, nil
}

// Close ends all readers with ErrClosed.
func (t *Tail) Close() {
	t.closing.Do(func() {
		t.stop()
		<-t.ended
		t.starting.Wait()
		t.readers.Close()
		t.client.Close()
	})
}

// End as the offset of Follow means from now on. Follow may then return some records that were written a moment ago.
const End = -1

// TopicRecreated makes the tail read the new topic after the old one was deleted. Readers of the old one end with ErrGone.
func (t *Tail) TopicRecreated() {
	t.recreated.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.interrupt != nil {
		t.interrupt()
	}
}

// Follow returns a reader of the thread with this record key, from an offset or End on. It returns ErrGone if the offset is beyond the end
// of the log. If the log has deleted the offset, the reader's first Next returns ErrGone.
func (t *Tail) Follow(ctx context.Context, key string, partition int32, from int64) (*Reader, error) {
	return t.FollowTo(ctx, key, partition, from, End)
}

// held as the offset of follow means from the oldest record of the ring on.
const held = -2

// FollowSince is Follow from a time on: the reader also returns the thread's records of the last d, and perhaps older ones. It reads them
// from the ring if d is at most Config.Since and the ring has not dropped them, and else from the log.
func (t *Tail) FollowSince(ctx context.Context, key string, partition int32, d time.Duration) (*Reader, error) {
	r, err := t.Follow(ctx, key, partition, held)
	since := time.Now().Add(-d)
	if err != nil || !r.since.After(since) {
		return r, err
	}
	r.Close()
	from, err := t.ask(ctx, partition, since.UnixMilli())
	if err != nil {
		return nil, err
	}
	end, err := t.End(ctx, partition) // before the high watermark, if a transaction is open
	if err != nil {
		return nil, err
	}
	return t.Follow(ctx, key, partition, min(from, end))
}

// FollowTo is Follow for a caller that knows the end of the log, which becomes the reader's End.
func (t *Tail) FollowTo(ctx context.Context, key string, partition int32, from, end int64) (*Reader, error) {
	for {
		p := t.open(partition)
		select {
		case <-p.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := p.failed(); err != nil && !errors.Is(err, errLeft) {
			return nil, err
		}
		r, err := t.follow(ctx, p, key, from, end)
		if !errors.Is(err, errLeft) {
			return r, err
		}
	}
}

// failed returns why the partition is not read, or nil.
func (p *partition) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// errLeft: the partition was closed, since it had no readers. Open it again.
var errLeft = errors.New("the partition is not read any more")

func (t *Tail) follow(ctx context.Context, p *partition, key string, from, end int64) (*Reader, error) {
	// The log may be ahead of what this process has read, and the caller may come from a process that has read more.
	if from >= 0 && end == End {
		var err error
		if end, err = t.End(ctx, p.id); err != nil {
			return nil, err
		}
	}
	if from >= 0 && from > end {
		return nil, fmt.Errorf("following from offset %d: %w: it ends at %d", from, ErrGone, end)
	}
	r := &Reader{tail: t, p: p, key: key, next: from, end: end, wake: make(chan struct{}, 1), lastAsked: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	if from < 0 {
		r.next = max(p.ring.next, p.filled)
		r.end = r.next
	}
	if from == held {
		r.next, r.since = p.ring.start, p.ring.since
	}
	r.thread = p.ring.thread(key)
	if r.thread.readers == nil {
		r.thread.readers = map[*Reader]struct{}{}
	}
	r.thread.readers[r] = struct{}{}
	p.readers++
	if p.ring.next < r.end {
		p.toEnd[r] = struct{}{}
	}
	t.metrics.readers.Inc()
	return r, nil
}

// Start returns the first offset that a partition still has.
func (t *Tail) Start(ctx context.Context, partition int32) (int64, error) {
	return t.ask(ctx, partition, kafka.Earliest)
}

// question is a request for the end of a partition that callers share.
type question struct {
	begun  bool
	done   chan struct{}
	offset int64
	err    error
}

// End returns the offset after the last committed record of a partition. The broker answers after the call: a caller that arrives while
// a request is under way waits for the next one, which all who arrive meanwhile share.
func (t *Tail) End(ctx context.Context, partition int32) (int64, error) {
	t.mu.Lock()
	q := t.questions[partition]
	if (q == nil || q.begun) && t.ctx.Err() == nil {
		before := q
		q = &question{done: make(chan struct{})}
		t.questions[partition] = q
		t.starting.Go(func() { t.answer(q, before, partition) })
	}
	t.mu.Unlock()
	if q == nil {
		return 0, ErrClosed
	}
	select {
	case <-q.done:
		return q.offset, q.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (t *Tail) answer(q, before *question, partition int32) {
	defer close(q.done)
	if before != nil {
		<-before.done
	}
	t.mu.Lock()
	q.begun = true
	t.mu.Unlock()
	q.offset, q.err = t.ask(t.ctx, partition, kafka.Stable)
}

// Partition returns the partition of a record key.
func (t *Tail) Partition(ctx context.Context, key string) (int32, error) {
	n := t.count.Load()
	if n == 0 {
		ctx, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		listed, err := kadm.NewClient(t.client).ListStartOffsets(ctx, t.topic)
		if err == nil && len(listed[t.topic]) == 0 {
			err = kafka.ErrNoTopic
		}
		if err != nil {
			return 0, fmt.Errorf("counting the partitions of %s: %w", t.topic, err)
		}
		n = int32(len(listed[t.topic]))
		t.count.Store(n) // positions belong to one topic set, whose count does not change
	}
	return record.Partition([]byte(key), n), nil
}

// open returns the partition, and starts to open it if it is not read.
func (t *Tail) open(id int32) *partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.partitions[id]
	if p == nil {
		p = &partition{id: id, ready: make(chan struct{}), idle: time.Now(), toEnd: map[*Reader]struct{}{}}
		t.partitions[id] = p
		if t.ctx.Err() != nil {
			p.err = ErrClosed
			close(p.ready)
			return p
		}
		t.starting.Go(func() { t.start(p) })
	}
	return p
}

// start finds the first offset to read and hands the partition to the fetch loop.
func (t *Tail) start(p *partition) {
	defer close(p.ready)
	first, err := t.ask(t.ctx, p.id, kafka.Earliest)
	var end int64
	if err == nil {
		end, err = t.End(t.ctx, p.id)
	}
	if err != nil {
		t.give(p, err)
		return
	}
	since, first := time.Now().Add(-t.cfg.Since), max(first, end-t.cfg.Window)
	if t.cfg.Since > 0 {
		at, err := t.ask(t.ctx, p.id, since.UnixMilli())
		if err != nil {
			t.give(p, err)
			return
		}
		if first > at { // the window is too small for it
			since = time.Now()
		}
		first = max(first, min(at, end))
	}
	p.mu.Lock()
	p.ring, p.filled = newRing(first), end
	p.ring.since = since
	p.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.partitions[p.id] != p { // forget has closed it meanwhile
		return
	}
	t.opened = append(t.opened, p)
	if t.interrupt != nil {
		t.interrupt()
	}
}

// ask requests one offset of a partition (kafka.Offset).
func (t *Tail) ask(ctx context.Context, partition int32, at int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	return kafka.Offset(ctx, t.client, t.topic, partition, at)
}

// run is the fetch loop.
func (t *Tail) run() {
	defer close(t.ended)
	for last := time.Now(); t.ctx.Err() == nil; {
		if t.recreated.Swap(false) {
			t.forget()
		}
		poll := t.arrange()
		fetches := t.client.PollRecords(poll, pollRecords)
		fetches.EachPartition(t.take)
		if now := time.Now(); now.Sub(last) >= housekeeping {
			t.closeUnread(now)
			last = now
		}
	}
	t.mu.Lock()
	parts := maps.Clone(t.partitions)
	t.mu.Unlock()
	for _, p := range parts {
		t.give(p, ErrClosed)
	}
}

// forget closes all partitions and makes the client look up the topic again.
func (t *Tail) forget() {
	t.mu.Lock()
	t.opened = nil
	parts := maps.Clone(t.partitions)
	t.mu.Unlock()
	t.client.PurgeTopicsFromConsuming(t.topic)
	for _, p := range parts {
		t.give(p, ErrGone)
	}
}

// arrange adds opened partitions to the client and returns the context of the next poll.
func (t *Tail) arrange() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := map[int32]kgo.Offset{}
	for _, p := range t.opened {
		p.mu.Lock()
		from[p.id] = kgo.NoResetOffset().At(p.ring.next)
		p.mu.Unlock()
	}
	t.opened = nil
	if len(from) > 0 {
		t.answered.Store(time.Now().UnixNano()) // without readers, nothing was fetched
		t.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: from})
	}
	ctx, cancel := context.WithTimeout(t.ctx, housekeeping)
	t.interrupt = cancel
	return ctx
}

// take adds polled records to the partition's ring and wakes the readers of their threads.
func (t *Tail) take(f kgo.FetchTopicPartition) {
	t.mu.Lock()
	p := t.partitions[f.Partition]
	limit := t.cfg.RingBytes / max(1, len(t.partitions))
	t.mu.Unlock()
	if p == nil {
		return
	}
	if errors.Is(f.Err, kafka.ErrUnpackLater) {
		return
	}
	if err := f.Err; err != nil {
		if errors.Is(err, kerr.OffsetOutOfRange) { // deleted by retention, or the topic was created again
			err = fmt.Errorf("%w: %w", ErrGone, err)
		}
		t.cfg.Logger.Warn("stopped following a partition", "topic", t.topic, "partition", p.id, "error", err)
		t.client.RemoveConsumePartitions(map[string][]int32{t.topic: {p.id}})
		t.give(p, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ring == nil {
		return
	}
	held := p.ring.bytes
	for _, m := range f.Records {
		if t.cfg.Keep != nil && !t.cfg.Keep(m) {
			p.ring.skip(m)
			continue
		}
		if th := p.ring.add(m); th != nil {
			for r := range th.readers {
				r.signal()
			}
		}
	}
	for r := range p.toEnd {
		if p.ring.next >= r.end {
			r.signal()
			delete(p.toEnd, r)
		}
	}
	p.ring.evict(limit)
	t.metrics.ringBytes.Add(float64(p.ring.bytes - held))
}

// give closes a partition. Its readers end with the error.
func (t *Tail) give(p *partition, err error) {
	t.mu.Lock()
	if t.partitions[p.id] == p {
		delete(t.partitions, p.id)
	}
	t.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if p.ring == nil {
		return
	}
	t.metrics.ringBytes.Sub(float64(p.ring.bytes))
	p.wake()
	p.ring = newRing(0)
}

// closeUnread closes partitions that have had no reader for Linger, and wakes readers when Away changes.
func (t *Tail) closeUnread(now time.Time) {
	t.mu.Lock()
	parts := maps.Clone(t.partitions)
	t.mu.Unlock()
	read := 0
	for _, p := range parts {
		p.mu.Lock()
		left := p.ring != nil && p.readers == 0 && now.Sub(p.idle) >= t.cfg.Linger
		if left && p.err == nil {
			p.err = errLeft // at once: a reader that comes now opens the partition again
		}
		p.mu.Unlock()
		if !left {
			read++
			continue
		}
		t.client.RemoveConsumePartitions(map[string][]int32{t.topic: {p.id}})
		t.give(p, errLeft)
	}
	t.metrics.partitions.Set(float64(read))
	away := read > 0 && now.Sub(time.Unix(0, t.answered.Load())) >= t.cfg.Away
	t.mu.Lock()
	changed := away != t.away
	t.away = away
	t.mu.Unlock()
	if !changed {
		return
	}
	if away {
		t.cfg.Logger.Warn("brokers do not answer; live streams wait", "topic", t.topic)
	} else {
		t.cfg.Logger.Info("brokers answer again; live streams continue", "topic", t.topic)
	}
	for _, p := range parts {
		p.mu.Lock()
		p.wake()
		p.mu.Unlock()
	}
}

// wake wakes all readers. The partition's lock is held.
func (p *partition) wake() {
	if p.ring == nil {
		return
	}
	for _, th := range p.ring.threads {
		for r := range th.readers {
			r.signal()
		}
	}
}

// isAway reports whether brokers have been silent for Away.
func (t *Tail) isAway() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.away
}

// answers records when a broker answers a fetch.
type answers struct{ t *Tail }

var _ kgo.HookBrokerE2E = answers{}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (a answers) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == int16(kmsg.Fetch) && e2e.Err() == nil {
		a.t.answered.Store(time.Now().UnixNano())
	}
}
