package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// session is one life of the group's client. One goroutine, the actor, polls, processes and commits
// (run); while it folds (process), each partition is in the hands of one goroutine, which the actor waits for. The
// client's callbacks only note what is assigned and what is gone. A session ends with
// the context, or with an error after which the client cannot be trusted; then the next one starts
// from what is committed.
type session struct {
	cfg     Config
	kafka   kafka.Config
	topics  kafka.Topics
	logger  *slog.Logger
	metrics *Metrics
	stores  *stores
	// catchUps tell how far the stores are that are behind.
	catchUps *catchUps
	now      func() time.Time
	turn     func() // the work has come round

	set         kafka.TopicSet
	runsTopicID string
	eventsID    string // empty where the brokers know no topic ids
	storeMaxAge time.Duration

	group  *kgo.GroupTransactSession
	client *kgo.Client
	admin  *kadm.Client
	caught chan caught
	work   sync.WaitGroup // what runs beside the actor

	mu       sync.Mutex
	assigned map[int32]*assignment
	// joined: the group has said what is ours, which may be nothing, and has not thrown us out since.
	joined bool
	// revoked: partitions were taken since the last End, so that the next End will abort.
	revoked bool
	// joining is when a rebalance began that is not over; zero if none is under way. owed: kgo
	// rejoins after a revocation and hides that second callback, so one more assignment is to come.
	joining time.Time
	owed    bool
	failure error // found by a callback

	learned map[string]bool // topics that the client has written to, and knows

	// rest is what was polled and is not processed yet. Nothing more is polled before it is.
	rest []*polled
	// room is that of the next transaction; nil until something is processed for it.
	room *Room

	said string // the error of a poll that was logged last

	checkedAt time.Time // of partition counts
	heldAt    time.Time // since when a transaction waits for them; zero where none does
	idleAt    time.Time // of runs that are silent by the wall clock
}

// foldRecords is how many records of a partition are folded before a round looks at what it has come to.
const foldRecords = 5_000

// pollRecords is how many records are taken at once of what brokers have answered. One answer is some 25,000 where
// texts are short. A broker is asked again once its answer is taken whole, so that the next one is fetched and
// unpacked while this one is folded; the bound is for many brokers, as what is taken is held beside it.
const pollRecords = 50_000

// roundBytes is how many bytes of outputs end a round before the commit interval is over, be it in the middle of a
// poll: a transaction is held in memory whole. Many short runs can make far more of them than they have read.
const roundBytes = 32 << 20

// joinWait is how long a transaction waits for a join at most.
const joinWait = 5 * time.Second

// start joins the group.
func (s *session) start(ctx context.Context) error {
	s.assigned, s.learned = map[int32]*assignment{}, map[string]bool{}
	s.caught = make(chan caught)
	if err := s.readTopics(ctx); err != nil {
		return err
	}
	group, err := kafka.NewCompactorSession(ctx, s.kafka, kafka.CompactorOptions{
		Group: s.cfg.Group, InstanceID: s.cfg.InstanceID,
		Hooks: kafka.CompactorHooks{
			OnAssigned: s.onAssigned, OnRevoked: s.onRevoked, OnLost: s.onLost,
			OnOffsetsFetched: s.onOffsetsFetched, AdjustFetchOffsets: adjustOffsets,
		},
	})
	if err != nil {
		return err
	}
	s.group, s.client = group, group.Client()
	return nil
}

// readTopics asks for what a session rests on: one partition count, and which topic skein.runs is.
func (s *session) readTopics(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var err error
	if s.set, err = kafka.ReadTopicSet(ctx, s.admin, s.topics); err != nil {
		return err
	}
	s.runsTopicID = s.set.IDs[1].String()
	if id := s.set.IDs[0]; id != (kadm.TopicID{}) {
		s.eventsID = id.String()
	}
	s.storeMaxAge, err = s.tombstoneAge(ctx)
	return err
}

// tombstoneAge is half of the time that tombstones stay on skein.runs: a store that is older may
// have missed one.
func (s *session) tombstoneAge(ctx context.Context) (time.Duration, error) {
	settings, err := kafka.TopicSettings(ctx, s.admin, s.topics.Runs)
	if err != nil {
		return 0, err
	}
	value := settings[s.topics.Runs]["delete.retention.ms"]
	if value == "" {
		return 12 * time.Hour, nil // half of Kafka's default
	}
	age, err := time.ParseDuration(value + "ms")
	if err != nil {
		return 0, fmt.Errorf("reading delete.retention.ms of %s: %w", s.topics.Runs, err)
	}
	return age / 2, nil
}

// close ends the session without a commit. The member does not leave the group: it is static, and
// its next session, in this process or the next, takes its place.
func (s *session) close() {
	s.mu.Lock()
	for id, a := range s.assigned {
		a.cancel()
		delete(s.assigned, id)
		s.metrics.Stops.Remove(id)
	}
	s.mu.Unlock()
	// They are of partitions that are not ours any more.
	s.metrics.OpenRuns.Set(0)
	s.metrics.OpenRunBytes.Set(0)
	s.metrics.Partitions.WithLabelValues("open").Set(0)
	s.metrics.Partitions.WithLabelValues("opening").Set(0)
	if s.group != nil {
		s.group.CloseAllowingRebalance()
	}
	s.work.Wait()
}

func (s *session) onAssigned(_ context.Context, cl *kgo.Client, m map[string][]int32) {
	ids := m[s.topics.Events]
	if len(ids) > 0 {
		// Before the client even fetches offsets, so nothing leaks through.
		cl.PauseFetchPartitions(map[string][]int32{s.topics.Events: ids})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owed {
		s.joining = time.Time{}
	}
	s.owed = false
	if !s.joined && len(s.assigned) == 0 {
		s.metrics.Lag.Only(ids...) // what another session had may be another member's now
	}
	s.joined = true
	for _, id := range ids {
		if old := s.assigned[id]; old != nil {
			old.cancel()
		}
		a := &assignment{id: id, since: s.now(), fence: -1}
		a.ctx, a.cancel = context.WithCancel(context.Background())
		s.assigned[id] = a
	}
	s.metrics.Lag.Opening(ids...)
	if len(ids) > 0 {
		s.logger.Info("partitions assigned", "partitions", ids)
	}
}

func (s *session) onRevoked(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	s.taken(m[s.topics.Events], true)
}

func (s *session) onLost(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	s.taken(m[s.topics.Events], false)
}

// taken drops partitions at once, inside the callback: the broker does not check who owns a
// partition, so nothing may be done in its name from here on.
func (s *session) taken(ids []int32, revoked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joining = s.now() // until onAssigned, which comes for every generation, even with nothing new
	s.joined = s.joined && revoked
	for _, id := range ids {
		if a := s.assigned[id]; a != nil { // else the session is being closed: what waits is the next one's
			a.cancel()
			delete(s.assigned, id)
			s.metrics.Lag.Gone(id)
			s.metrics.Stops.Remove(id)
		}
		s.revoked = true
		s.owed = revoked
	}
	if len(ids) > 0 {
		s.logger.Info("partitions taken", "partitions", ids, "lost", !revoked)
	}
}

// onOffsetsFetched takes committed offsets and metadata out of the answer that the assignment
// itself asked for.
func (s *session) onOffsetsFetched(_ context.Context, _ *kgo.Client, r *kmsg.OffsetFetchResponse) error {
	for _, g := range r.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				s.mu.Lock()
				a := s.assigned[p.Partition]
				fresh := a != nil && a.phase == phaseAsking && !a.asked
				s.mu.Unlock()
				if !fresh || p.ErrorCode != 0 {
					continue
				}
				metadata := ""
				if p.Metadata != nil {
					metadata = *p.Metadata
				}
				s.fetched(a, p.Offset, metadata)
			}
		}
	}
	return nil
}

// fetched notes what is committed for a partition.
func (s *session) fetched(a *assignment, offset int64, metadata string) {
	pos, err := ParseProgress(offset, metadata, s.set.Partitions)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.assigned[a.id] != a || a.phase != phaseAsking {
		return
	}
	if err != nil {
		s.failure = fmt.Errorf("opening partition %d: %w", a.id, err)
		return
	}
	a.progress, a.phase = pos, phaseFencing
}

// adjustOffsets turns "nothing committed" into a number: SetOffsets and CommittedOffsets silently
// pass over partitions that have none. The partition is paused; its first offset is set when it opens.
func adjustOffsets(_ context.Context, m map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for _, offsets := range m {
		for p, o := range offsets {
			if o.EpochOffset().Offset < 0 {
				offsets[p] = kgo.NewOffset().At(0)
			}
		}
	}
	return m, nil
}

// current reports whether the assignment still holds.
func (s *session) current(a *assignment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assigned[a.id] == a
}

// run is the actor.
func (s *session) run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.turn()
		if err := s.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

// polled is what was polled of a partition, and the assignment under which it was open. What is left of it when
// that ends, or is replaced by another, is nobody's: the next owner reads from what is committed.
type polled struct {
	of      *assignment
	records []*kgo.Record
	stop    Stop // why the processor took no more
}

// round takes what comes within a commit interval and commits it. It is over sooner where that comes to much: a thread
// that was folded again is committed by itself, and what else was polled waits for the next round. So is one whose transaction
// may ask for partition counts sooner.
func (s *session) round(ctx context.Context) error {
	length := s.cfg.CommitInterval
	if now := s.now(); s.awaitsCounts(now) { // the transaction is late already
		length = min(length, misplacedEvery-now.Sub(s.checkedAt))
	}
	interval, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	for _, p := range s.rest { // the last commit has said that all that was read is done
		s.read(p.of.id, p.records)
	}
	for first, full := true, false; first || interval.Err() == nil && !full; first = false {
		var fetches kgo.Fetches
		var err error
		if len(s.rest) == 0 {
			if fetches, err = s.poll(interval); err != nil {
				return err
			}
		}
		// The client goes back to what it has polled up to before the last End: what was polled now is fetched
		// again. So may the rest be, where no End came since: what lies below a partition's next offset is passed over.
		if used, err := s.useUpRevocation(ctx); used || err != nil {
			return err
		}
		now := s.now()
		if err := s.checkCounts(ctx, now); err != nil {
			return err
		}
		if err := s.takeCaught(now); err != nil {
			return err
		}
		parts, joining := s.owned(now)
		if s.room == nil {
			s.room = NewRoom(max(1, len(parts)))
		}
		s.hold(fetches, parts)
		if (joining || s.awaitsCounts(now)) && s.room.Full() {
			<-interval.Done()
			return nil
		}
		if full, err = s.process(ctx, parts, now); err != nil {
			return err
		}
	}
	if hold, err := s.checkMisplaced(ctx); hold || err != nil {
		return err // nil: fold on, and commit once the brokers have said
	}
	// Anew: while the brokers were asked, or a thread was read that is folded again, partitions may have been taken, or a
	// join have begun.
	now := s.now()
	parts, joining := s.owned(now)
	if joining {
		// A transaction now would carry the old generation and be aborted, or stall: fold on,
		// commit after the join.
		return nil
	}
	return s.transact(ctx, parts, now)
}

// hold keeps what was polled of open partitions. What leaks through of a paused one is fetched again once it opens.
func (s *session) hold(fetches kgo.Fetches, parts map[int32]view) {
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		v := parts[f.Partition]
		if v.phase != phaseOpen || v.part.Stats().Paused || s.metrics.Stops.Has(f.Partition) {
			return
		}
		records := s.readable(f.Records)
		if len(records) == 0 {
			return
		}
		s.read(f.Partition, records)
		for _, p := range s.rest {
			if p.of == v.assignment { // of another broker
				p.records = append(slices.Clip(p.records), records...)
				return
			}
		}
		s.rest = append(s.rest, &polled{of: v.assignment, records: records})
	})
}

// readable returns the records of one partition before the first one that a newer Skein wrote. The partition stops there: what was read
// is committed, and whoever owns the partition after an upgrade reads on from what is committed.
func (s *session) readable(records []*kgo.Record) []*kgo.Record {
	for i, m := range records {
		if err := kafka.CheckVersion(m); err != nil {
			s.client.PauseFetchPartitions(map[string][]int32{m.Topic: {m.Partition}})
			s.stop(m.Partition, err)
			return records[:i]
		}
	}
	return records
}

// stop notes that a partition stops, since a newer Skein wrote what it would read next.
func (s *session) stop(partition int32, err error) {
	if s.metrics.Stops.Add(partition, err) {
		s.logger.Error("partition stopped: a newer version wrote its next record; update this process", "partition", partition, "error", err)
	}
}

// process folds some of the rest: that of each open partition beside the others'. It says that the round is over (full)
// where their outputs are enough for a transaction, or where a thread was folded again.
func (s *session) process(ctx context.Context, parts map[int32]view, now time.Time) (full bool, err error) {
	s.rest = slices.DeleteFunc(s.rest, func(p *polled) bool { return parts[p.of.id].assignment != p.of })
	defer func() {
		s.rest = slices.DeleteFunc(s.rest, func(p *polled) bool { return len(p.records) == 0 })
	}()
	for _, p := range s.rest {
		if p.stop == StopRefold {
			return s.processAlone(ctx, p, now)
		}
	}
	var folding errgroup.Group
	folding.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range s.rest {
		folding.Go(func() error { return p.process(s.room, now) })
	}
	err = folding.Wait()
	return s.room.Full(), err
}

// process hands some of the records to the processor.
func (p *polled) process(room *Room, now time.Time) error {
	taken, stop, err := p.of.part.Process(p.records[:min(foldRecords, len(p.records))], now, room)
	p.take(taken)
	p.stop = stop
	return err
}

// take drops the first records: the processor has what it needs of them.
func (p *polled) take(n int) {
	for _, m := range p.records[:n] {
		m.Recycle()
	}
	p.records = p.records[n:]
}

// processAlone hands over what may be a request to refold a thread, and answers it: what that makes is a transaction of its
// own, and no other partition's request goes with it.
func (s *session) processAlone(ctx context.Context, p *polled, now time.Time) (refolded bool, err error) {
	r, err := p.of.part.BeginRefold(p.records[0], now)
	if err != nil {
		return false, err
	}
	p.take(1)
	p.stop = StopEnd
	if r == nil {
		return false, nil
	}
	return true, s.refold(ctx, p.of, r)
}

// read tells the lag of what was polled. For markers of transactions nobody waits.
func (s *session) read(partition int32, records []*kgo.Record) {
	var oldest, newest time.Time
	for _, m := range records {
		if m.Attrs.IsControl() {
			continue
		}
		if oldest.IsZero() || m.Timestamp.Before(oldest) {
			oldest = m.Timestamp
		}
		if m.Timestamp.After(newest) {
			newest = m.Timestamp
		}
	}
	if oldest.IsZero() {
		return
	}
	s.metrics.Lag.Read(partition, oldest)
	s.metrics.Lag.Read(partition, newest)
}

// poll takes some of what the client holds, and waits where that is nothing.
func (s *session) poll(ctx context.Context) (kgo.Fetches, error) {
	failed := false
	fetches := s.group.PollRecords(ctx, pollRecords)
	for _, e := range fetches.Errors() {
		if isFenced(e.Err) {
			return nil, fmt.Errorf("%w: %w", ErrFenced, e.Err)
		}
		// UNKNOWN_MEMBER_ID and its like: kgo rejoins by itself.
		// UNKNOWN_TOPIC_ID: made anew; the client stays with the topic that is gone.
		if errors.Is(e.Err, kerr.OffsetOutOfRange) || errors.Is(e.Err, kerr.UnknownTopicID) || errors.Is(e.Err, kgo.ErrClientClosed) {
			return nil, fmt.Errorf("polling %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		if !errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.Err, context.Canceled) {
			if s.said != e.Err.Error() {
				s.said = e.Err.Error()
				s.logger.Warn("polling reported an error", "topic", e.Topic, "partition", e.Partition, "error", e.Err)
			}
			failed = true
		}
	}
	if failed && fetches.NumRecords() == 0 {
		// The client may have the same answer at once again, such as where the topic is gone.
		<-ctx.Done()
	}
	return fetches, nil
}

// useUpRevocation ends an empty transaction after a revocation: the session aborts the next End
// anyway, and this one has nothing to lose. Its (false, nil) is safe; the client goes back to its
// last position, and what is fetched twice is known by its offset.
func (s *session) useUpRevocation(ctx context.Context) (bool, error) {
	s.mu.Lock()
	revoked, failure := s.revoked, s.failure
	s.revoked = false
	s.mu.Unlock()
	if failure != nil || !revoked {
		return false, failure
	}
	if err := s.group.Begin(); err != nil {
		return true, fmt.Errorf("beginning transaction: %w", err)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if _, err := s.group.End(ctx, kgo.TryAbort); err != nil {
		return true, endError(err)
	}
	return true, nil
}

// view is an assignment as it stands at the beginning of a round.
type view struct {
	*assignment
	phase    phase
	progress Progress
}

// owned returns the assignments as they stand, and whether a join is under way. Partitions that the
// client does not hold any more are dropped: the session swallows callbacks between two Ends.
func (s *session) owned(now time.Time) (map[int32]view, bool) {
	held := s.client.CommittedOffsets()[s.topics.Events]
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make(map[int32]view, len(s.assigned))
	opening := 0
	for id, a := range s.assigned {
		if _, ok := held[id]; ok {
			a.known = true
		} else if a.known {
			s.logger.Info("partition left without a word", "partition", id)
			a.cancel()
			delete(s.assigned, id)
			s.metrics.Lag.Gone(id)
			s.metrics.Stops.Remove(id)
			continue
		}
		if a.phase != phaseOpen {
			opening++
		}
		parts[id] = view{assignment: a, phase: a.phase, progress: a.progress}
	}
	s.metrics.Partitions.WithLabelValues("open").Set(float64(len(parts) - opening))
	s.metrics.Partitions.WithLabelValues("opening").Set(float64(opening))
	return parts, !s.joining.IsZero() && now.Sub(s.joining) < joinWait
}

// takeCaught opens the partitions whose stores have caught up.
func (s *session) takeCaught(now time.Time) error {
	for {
		select {
		case c := <-s.caught:
			if !s.current(c.a) {
				continue
			}
			if errors.Is(c.err, errOtherEvents) {
				return c.err // the same of every partition
			}
			if errors.Is(c.err, record.ErrUnknownVersion) {
				s.stop(c.a.id, c.err) // it stays closed
				continue
			}
			if c.err != nil {
				return fmt.Errorf("opening partition %d: %w", c.a.id, c.err)
			}
			s.mu.Lock()
			c.a.part, c.a.phase = c.part, phaseOpen
			s.metrics.Lag.Opened(c.a.id)
			s.mu.Unlock()
			stats := c.part.Stats()
			if !stats.Paused {
				s.readOn(c.a.id, stats.Next)
			}
			s.metrics.OpenSeconds.Observe(now.Sub(c.a.since).Seconds())
			s.logger.Info("partition open", "partition", c.a.id, "offset", stats.Next, "decided", stats.Processed)
		default:
			return nil
		}
	}
}

// readOn has the client fetch a partition from an offset on.
func (s *session) readOn(partition int32, offset int64) {
	s.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{s.topics.Events: {partition: {Epoch: -1, Offset: offset}}})
	s.metrics.Stops.Remove(partition)
	s.client.ResumeFetchPartitions(map[string][]int32{s.topics.Events: {partition}})
}

// checkCounts looks at partition counts now and then: see askCounts.
func (s *session) checkCounts(ctx context.Context, now time.Time) error {
	const every = 30 * time.Second
	if s.checkedAt.IsZero() {
		s.checkedAt = now
	}
	if now.Sub(s.checkedAt) < every {
		return nil
	}
	said, err := s.askCounts(ctx)
	if !said { // a broker is away: the transactions will tell
		s.logger.Debug("checking partition counts", "error", err)
		return nil
	}
	return err
}

// misplacedEvery is the least time between the brokers' answer and the next look at partition counts for the sake of records on
// the wrong partition. It has to be longer than the client keeps what it was told (250 ms), which may be from before a record
// came. It is no longer, as everybody's transactions wait for it.
const misplacedEvery = 300 * time.Millisecond

// misplacedWait is how long a transaction waits for partition counts at most. Runs at hand are let go by transactions only, so
// they grow meanwhile. It is time for some tries: one takes 2 s where a broker is silent.
const misplacedWait = 10 * time.Second

// checkMisplaced looks at partition counts before a transaction that sends records to dead letters because they are on the
// wrong partition: their producer may know of partitions that were added. The transaction waits (hold) where the brokers
// were asked a moment ago, or do not say: whose mistake it is must not be guessed. Where they do not for long the session
// ends, and with it what waits in memory: the next one does not join before they say.
func (s *session) checkMisplaced(ctx context.Context) (hold bool, err error) {
	now := s.now()
	if !s.hasMisplaced() {
		s.heldAt = time.Time{}
		return false, nil
	}
	if s.heldAt.IsZero() {
		s.heldAt = now
	}
	if s.awaitsCounts(now) {
		return true, nil
	}
	said, err := s.askCounts(ctx)
	if said {
		s.heldAt = time.Time{}
		return false, err
	}
	if s.now().Sub(s.heldAt) > misplacedWait {
		return false, fmt.Errorf("records are on the wrong partition, and for %v brokers have not said how many there are: %w", misplacedWait, err)
	}
	if s.said != err.Error() {
		s.said = err.Error()
		s.logger.Warn("records are on the wrong partition, and brokers do not say how many there are: nothing is committed until they do", "error", err)
	}
	return true, nil
}

// hasMisplaced reports whether a record of the wrong partition is to go to dead letters.
func (s *session) hasMisplaced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.assigned {
		if a.phase == phaseOpen && a.part.Stats().Misplaced > 0 {
			return true
		}
	}
	return false
}

// awaitsCounts reports whether the next transaction waits until partition counts may be asked for again.
func (s *session) awaitsCounts(now time.Time) bool {
	return now.Sub(s.checkedAt) < misplacedEvery && s.hasMisplaced()
}

// askCounts stops the compactor when partitions were added: threads would be split in silence. Topics
// that are gone, or were made anew, end the session: the client would wait for the old ones for ever. Where the brokers do
// not say how it stands (said), the error is why.
func (s *session) askCounts(ctx context.Context) (said bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	set, err := kafka.ReadTopicSet(ctx, s.admin, s.topics)
	s.checkedAt = s.now() // not before: the client keeps an answer from when it came
	switch {
	case errors.Is(err, kafka.ErrPartitionCounts), errors.Is(err, kafka.ErrNoTopic):
		return true, err
	case err != nil:
		return false, err
	}
	return true, set.Compare(s.set)
}

// logEnds asks where the log of each partition ends that has a run which expires by the clock; that is looked at now and
// then. Where the brokers do not say, no run expires.
func (s *session) logEnds(ctx context.Context, parts map[int32]view, now time.Time) map[int32]int64 {
	if now.Sub(s.idleAt) < min(time.Minute, max(s.cfg.IdleLimit/10, 50*time.Millisecond)) {
		return nil
	}
	s.idleAt = now
	var due []int32
	for id, v := range parts {
		if v.phase != phaseOpen {
			continue
		}
		if at := v.part.Stats().NextExpiry; !at.IsZero() && !at.After(now) {
			due = append(due, id)
		}
	}
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	listed, err := s.admin.ListEndOffsets(ctx, s.topics.Events)
	if err != nil {
		s.logger.Debug("asking for the end of events", "error", err)
		return nil
	}
	ends := map[int32]int64{}
	for _, id := range due {
		if end, ok := listed.Lookup(s.topics.Events, id); ok && end.Err == nil {
			ends[id] = end.Offset
		}
	}
	return ends
}

// isFenced reports whether another process has this instance's ids.
func isFenced(err error) bool {
	return errors.Is(err, kerr.FencedInstanceID) || errors.Is(err, kerr.ProducerFenced)
}
