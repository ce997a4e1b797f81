package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
)

// session is one life of the group's client. One goroutine runs the main loop (cycle): it polls, processes and commits.
// While it folds, one goroutine works on each partition, and the loop waits for them. Partitions are opened in the
// background (opener). A session ends with the context, or with an error after which the client cannot be trusted; the
// next one starts from what was committed.
type session struct {
	*Service // its settings, clock, logger and metrics
	topics   kafka.Topics

	admin  *kadm.Client
	group  *kgo.GroupTransactSession
	client *kgo.Client

	members membership
	counts  partitionCounts
	opener  opener
	backlog backlog
	// room is the room of the next transaction; turn counts calls of collect, see inTurn.
	room *partition.Room
	turn int
	txn  *transaction // nil: none has begun

	learned         map[string]bool // topics that the client has written to, so it has their metadata
	expiryCheckedAt time.Time       // see logEnds
	tenantsNotedAt  time.Time       // see noteTenants
}

// cycleOutcome is the end of a cycle of the main loop.
type cycleOutcome string

const (
	// cycleCommitted: a transaction was committed.
	cycleCommitted cycleOutcome = "committed"
	// cycleLostPartition: a transaction was committed, and one of its partitions was lost meanwhile.
	cycleLostPartition cycleOutcome = "lost-partition"
	// cycleAborted: this process aborted the transaction, as a record was not acknowledged.
	cycleAborted cycleOutcome = "aborted"
	// cycleUnknown: a rebalance or a broker aborted the transaction, or the client does not know its outcome.
	cycleUnknown cycleOutcome = "unknown"
	// cycleFailed: the client cannot be trusted any more; a new session follows.
	cycleFailed cycleOutcome = "error"
	// cycleIdle: there was nothing to commit.
	cycleIdle cycleOutcome = "idle"
	// cycleHeld: the transaction waits for a join, or for partition counts.
	cycleHeld cycleOutcome = "held"
	// cycleRevoked: partitions were revoked. The client aborts the next transaction, so an empty one was ended first.
	cycleRevoked cycleOutcome = "revoked"
)

// newSession returns a session that has not started.
func (s *Service) newSession(admin *kadm.Client, stores *runstore.Set) *session {
	topics := s.kafka.Topics()
	one := &session{
		Service: s, topics: topics, admin: admin,
		members: membership{topic: topics.Events, logger: s.logger, metrics: s.metrics, now: s.now, assigned: map[int32]*assignment{}},
		counts:  partitionCounts{admin: admin, topics: topics, logger: s.logger, now: s.now},
		backlog: backlog{logger: s.logger, lag: s.metrics.lag, now: s.now, refused: map[int32]time.Time{}},
		room:    partition.NewRoom(1), learned: map[string]bool{},
	}
	one.room.LimitMemory(s.cfg.Room(0))
	one.opener = opener{
		cfg: s.cfg, kafka: s.kafka, topics: topics, logger: s.logger, metrics: s.metrics, now: s.now, admin: admin, members: &one.members,
		stores: stores, catchUps: newCatchUps(s.logger, s.metrics), opened: make(chan opened),
	}
	one.members.fetch = one.opener.fetch
	return one
}

// start joins the group.
func (s *session) start(ctx context.Context) error {
	if err := s.readTopics(ctx); err != nil {
		return err
	}
	group, err := kafka.NewCompactorSession(ctx, s.kafka, kafka.CompactorOptions{
		Group: s.kafka.CompactorGroup(), InstanceID: s.cfg.InstanceID,
		Hooks: kafka.CompactorHooks{
			OnAssigned: s.members.onAssigned, OnRevoked: s.members.onRevoked, OnLost: s.members.onLost, AdjustFetchOffsets: adjustOffsets,
		},
	})
	if err != nil {
		return err
	}
	s.group, s.client = group, group.Client()
	s.backlog.group, s.opener.client = s.group, s.client
	return nil
}

// readTopics reads the topics' partition count and ids, which must not change during the session.
func (s *session) readTopics(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	set, err := kafka.ReadTopicSet(ctx, s.admin, s.topics)
	if err != nil {
		return err
	}
	s.counts.set, s.members.partitions = set, set.Partitions
	s.opener.runsTopicID = set.IDs[1].String()
	if id := set.IDs[0]; id != (kadm.TopicID{}) {
		s.opener.eventsID = id.String()
	}
	s.opener.storeMaxAge, err = s.tombstoneAge(ctx)
	return err
}

// tombstoneAge returns half of the time that tombstones stay on skein.runs. An older store may have missed one, so it is rebuilt.
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

// close ends the session without a commit. The member does not leave the group: it is static, and its next session, in
// this process or the next, takes its place.
func (s *session) close() {
	s.members.close()
	if s.txn != nil {
		s.txn.cancel()
	}
	// These belong to partitions that are no longer this member's.
	s.metrics.openRuns.Set(0)
	s.metrics.openRunBytes.Set(0)
	s.metrics.oldestRun.Store(nil)
	s.metrics.tenantOpenRuns.Set(nil)
	s.metrics.tenantOpenRunBytes.Set(nil)
	s.metrics.partitions.WithLabelValues("open").Set(0)
	s.metrics.partitions.WithLabelValues("opening").Set(0)
	if s.group != nil {
		s.group.CloseAllowingRebalance()
	}
	s.opener.work.Wait()
}

// run is the main loop.
func (s *session) run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.heartbeat()
		outcome, err := s.cycle(ctx)
		if err != nil {
			return err
		}
		if outcome != cycleCommitted && outcome != cycleIdle {
			s.logger.Debug("nothing was committed, or a partition is lost", "outcome", string(outcome))
		}
	}
	return nil
}

// cycle gathers records for a commit interval and commits their effects. It takes half as long if a run has ended, which somebody waits
// for, and longer while it lags. It ends sooner once the effects fill the room of a transaction.
func (s *session) cycle(ctx context.Context) (cycleOutcome, error) {
	length := s.counts.shorten(s.cfg.CommitInterval, s.members.misplaced())
	interval, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	half, cancelHalf := context.WithTimeout(ctx, length/2)
	defer cancelHalf()
	whileLagging := s.now().Add(laggingInterval)
	goesOn := func() bool {
		return interval.Err() == nil || ctx.Err() == nil && s.backlog.any() && s.now().Before(whileLagging)
	}
	s.backlog.noteLagAgain()
	for first := true; first || goesOn() && !s.room.Full(); first = false {
		if err := s.backlog.fetch(interval, &s.members); err != nil {
			return cycleFailed, err
		}
		if spent, err := s.spendRevocation(ctx); spent || err != nil {
			return cycleRevoked, err
		}
		if err := errors.Join(s.counts.checkNowAndThen(ctx), s.opener.takeOpened()); err != nil {
			return cycleFailed, err
		}
		own := s.owned()
		if err := s.process(own); err != nil {
			return cycleFailed, err
		}
		if err := s.send(ctx, own); err != nil {
			return cycleFailed, err
		}
		if slices.ContainsFunc(own.open(), (*partition.Processor).HasEnded) {
			interval = half
		}
	}
	switch known, err := s.counts.confirmMisplaced(ctx, s.members.misplaced()); {
	case err != nil:
		return cycleFailed, err
	case !known:
		return s.hold(interval)
	}
	own := s.owned() // again, as reading took time
	if own.joining {
		return s.hold(interval)
	}
	shares, err := s.collect(ctx, own)
	if err != nil {
		return cycleFailed, err
	}
	if !isWorthCommitting(shares) {
		return s.settle(shares, cycleIdle)
	}
	outcome, err := s.commit(ctx, shares)
	switch {
	case err != nil:
		return outcome, err
	case outcome == cycleCommitted:
		return s.settle(shares, outcome)
	}
	s.reopen()
	return outcome, nil
}

// laggingInterval is how long a cycle lasts while records wait to be folded: the fewer transactions end, the sooner all are.
const laggingInterval = time.Second

// hold ends a cycle without a transaction. If the room is full, hold waits for the interval's end, as nothing can be processed before.
func (s *session) hold(interval context.Context) (cycleOutcome, error) {
	if err := s.abandon(); err != nil {
		return cycleFailed, err
	}
	if s.room.Full() {
		<-interval.Done()
	}
	return cycleHeld, nil
}

// owned returns this member's partitions.
func (s *session) owned() owned { return s.members.owned(s.client.CommittedOffsets()[s.topics.Events]) }

// process folds some of the backlog, until the room is full.
func (s *session) process(own owned) error {
	s.backlog.dropLost(own)
	if s.room.Full() {
		return nil
	}
	return s.backlog.process(s.room, &s.members)
}

// spendRevocation ends the transaction after a revocation, an empty one if none has begun: the client aborts it in any case, and what was
// sent is sent again. The client returns to its last committed position; records that it fetches again are
// recognised by their offsets.
func (s *session) spendRevocation(ctx context.Context) (bool, error) {
	revoked, err := s.members.takeRevocation()
	if err != nil || !revoked {
		return false, err
	}
	if err := s.begin(ctx); err != nil {
		return true, err
	}
	return true, s.abandon()
}

// isFenced reports whether another process has this instance's ids.
func isFenced(err error) bool {
	return errors.Is(err, kerr.FencedInstanceID) || errors.Is(err, kerr.ProducerFenced)
}
