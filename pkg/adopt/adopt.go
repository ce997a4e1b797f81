package adopt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Options select the mirrored topic set.
type Options struct {
	Kafka kafka.Config
	// Lost is how many events the mirror may lack on each partition, at least 1. New events begin so many offsets after the last mirrored
	// one, so that a position that a reader kept never means another event.
	Lost int64
	// DryRun writes nothing.
	DryRun bool
	// Progress is called with the current step and its progress; it may be nil.
	Progress func(what string, done, total int)
}

// Report is the result of Run.
type Report struct {
	// Adopted: the stages accept the set. Already: an earlier call has adopted it, and this one has changed nothing.
	Adopted bool `json:"adopted"`
	Already bool `json:"already,omitempty"`
	DryRun  bool `json:"dryRun,omitempty"`
	// Partitions is the state of each partition.
	Partitions []Partition `json:"partitions"`
}

// Partition is the state of one partition.
type Partition struct {
	Partition int32 `json:"partition"`
	// End is the first offset of skein.events that the mirror lacks, Processed the processed offset of the mirrored records.
	End       int64 `json:"end"`
	Processed int64 `json:"processed"`
	// Proved is the number of run records that were proved by mirrored events.
	Proved int `json:"proved"`
	// Ahead is the number of run records with events that the mirror lacks. They are kept and marked rawLost.
	Ahead int `json:"ahead"`
	// Epoch is the first offset of the new epoch; 0 as long as it has not begun.
	Epoch int64 `json:"epoch"`
}

// ErrOffsets means that the mirrored events do not prove the run records, usually because the mirror did not keep offsets.
var ErrOffsets = errors.New("skein.events does not have the events of its run records at their offsets. Only a mirror that keeps them " +
	"can be adopted. " + anew)

// ErrCompacted means that some partitions have progress records of compactors of this cluster, and others the mirrored ones.
var ErrCompacted = errors.New("compactors have written here before the set was adopted, or the mirror after it: its progress records are " +
	"of two clusters. " + anew)

// ErrErasing means that the mirror ends in the middle of an erasure: some runs of the thread are gone, and others refer to them.
var ErrErasing = errors.New("the mirror ends in the middle of an erasure. " + anew)

const anew = "Its events can be folded anew: delete the other three topics, make them again with skein topics create, and start the " +
	"stages with an empty lineage store"

// ErrWritten means that something wrote to the topics meanwhile.
var ErrWritten = errors.New("something writes to the topics: stop the mirror, the stages and all producers, then adopt again")

// ErrOvertaken means that another call has begun meanwhile.
var ErrOvertaken = errors.New("another adopt of this topic set has begun: it goes on, and this one has not declared an epoch")

// askTimeout bounds a group of requests to the brokers.
const askTimeout = 30 * time.Second

type adoption struct {
	Options
	topics kafka.Topics
	group  string // of the compactors
	adm    *kadm.Client
	txn    *kgo.Client
	id     string // of skein.events
	events map[int32]kafka.Span
	runs   map[int32]kafka.Span
	parts  map[int32]*part
}

// Run adopts the topic set. It may be called again after any error, and after a kill.
func Run(ctx context.Context, o Options) (Report, error) {
	g := &adoption{Options: o, topics: o.Kafka.Topics(), group: o.Kafka.CompactorGroup()}
	report, err := g.run(ctx)
	if report.DryRun = o.DryRun; err != nil {
		return report, fmt.Errorf("adopting topics: %w", err)
	}
	return report, nil
}

func (g *adoption) run(ctx context.Context) (r Report, err error) {
	r.Partitions = []Partition{}
	if g.adm, err = kafka.NewAdmin(g.Kafka); err != nil {
		return r, err
	}
	defer g.adm.Close()
	if !g.DryRun { // this fences an earlier call, before anything is read
		if g.txn, err = kafka.NewTransactor(ctx, g.Kafka, g.Kafka.TopicPrefix+"skein-topics-adopt"); err != nil {
			return r, err
		}
		defer g.txn.Close()
	}
	was, err := g.look(ctx)
	if err != nil {
		return r, err
	}
	if err := g.read(ctx); err != nil {
		return r, err
	}
	r.Partitions = g.report()
	if r.Already, err = g.declared(); err != nil || r.Already || g.DryRun {
		r.Adopted = r.Already
		return r, err
	}
	if err := g.unused(ctx); err != nil {
		return r, err
	}
	now, err := g.ends(ctx) // reading took its time
	if err != nil {
		return r, err
	}
	if !maps.EqualFunc(was, now, maps.Equal[map[int32]int64, map[int32]int64]) {
		return r, ErrWritten
	}
	if err := g.declare(ctx); err != nil {
		return r, g.overtaken(err)
	}
	r.Partitions, r.Adopted = g.report(), true
	return r, nil
}

// look reads the topics' ids and offsets. It returns the ends of all topics.
func (g *adoption) look(ctx context.Context) (ends map[string]map[int32]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	set, err := kafka.ReadTopicSet(ctx, g.adm, g.topics)
	if err != nil {
		return nil, err
	}
	if set.IDs[0] == (kadm.TopicID{}) {
		return nil, errors.New("the brokers give topics no ids, by which an epoch is told: they have to be of Kafka 2.8 or later")
	}
	g.id = set.IDs[0].String()
	if ends, err = g.ends(ctx); err != nil { // before all that is read, so that a record in between is noticed
		return nil, err
	}
	if g.runs, err = kafka.Spans(ctx, g.adm, g.topics.Runs); err != nil {
		return nil, err
	}
	if g.events, err = kafka.Spans(ctx, g.adm, g.topics.Events); err != nil {
		return nil, err
	}
	return ends, nil
}

// unused returns an error if something uses the topics: a compactor, or an open transaction.
func (g *adoption) unused(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	groups, err := g.adm.DescribeGroups(ctx, g.group)
	for errors.Is(err, kerr.CoordinatorNotAvailable) && ctx.Err() == nil { // a cluster that never had a group makes room for them now
		time.Sleep(100 * time.Millisecond)
		groups, err = g.adm.DescribeGroups(ctx, g.group)
	}
	if err == nil {
		err = groups.Error()
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return fmt.Errorf("asking for the members of %s: %w", g.group, err)
	}
	if len(groups[g.group].Members) > 0 {
		return g.compactors()
	}
	for _, topic := range g.topics.All() {
		open, err := kafka.Unsettled(ctx, g.adm, topic)
		if err != nil {
			return err
		}
		for p, span := range open {
			return fmt.Errorf("partition %d of %s has an open transaction at %d: abort it with kafka-transactions.sh, then adopt again",
				p, topic, span.Start)
		}
	}
	return nil
}

func (g *adoption) ends(ctx context.Context) (map[string]map[int32]int64, error) {
	all := map[string]map[int32]int64{}
	for _, topic := range g.topics.All() {
		ends, err := kafka.Ends(ctx, g.adm, topic)
		if err != nil {
			return nil, err
		}
		all[topic] = ends
	}
	return all, nil
}

// declared reports whether the epoch of these topics was declared, which is done for all partitions at once, or they were never mirrored:
// without records of compactors, the stages take them as they are.
func (g *adoption) declared() (bool, error) {
	own, mirrored, unused := false, false, true
	for _, p := range g.parts {
		unused = unused && p.progress == nil && p.claimed == 0 && p.erasing == ""
		if p.progress != nil && p.progress.Events != "" {
			own, mirrored = own || p.progress.Events == g.id, mirrored || p.progress.Events != g.id
		}
	}
	if own && mirrored {
		return false, ErrCompacted
	}
	return own || unused, nil
}

func (g *adoption) report() []Partition {
	var all []Partition
	for _, id := range slices.Sorted(maps.Keys(g.parts)) {
		p := g.parts[id]
		one := Partition{Partition: id, End: p.events.End, Proved: p.proved, Ahead: len(p.ahead), Epoch: p.epoch}
		if p.progress != nil {
			one.Processed = p.progress.Processed
		}
		all = append(all, one)
	}
	return all
}

// declare marks the records that are ahead, deletes the compactors' offsets, skips the offsets of events that may be missing, and writes
// the progress records of the new epoch. Until those are committed, in one transaction, compactors refuse the set, and a next call does
// all of it again: a record is marked once, and more offsets are skipped.
func (g *adoption) declare(ctx context.Context) error {
	var marks, epoch []*kgo.Record
	for id, p := range g.parts {
		for _, r := range p.ahead {
			if r.run.RawLost {
				continue
			}
			r.run.RawLost = true
			value, err := record.EncodeRun(r.run)
			if err != nil {
				return fmt.Errorf("marking run record %d:%d: %w", id, r.Offset, err)
			}
			marks = append(marks, &kgo.Record{Topic: g.topics.Runs, Partition: id, Key: r.Key, Value: value, Headers: r.Headers})
		}
		progress := record.Progress{}
		if p.progress != nil {
			progress = *p.progress
		}
		progress.Events = g.id
		epoch = append(epoch, &kgo.Record{
			Topic: g.topics.Runs, Partition: id, Key: []byte(record.ProgressKey), Value: record.EncodeProgress(progress),
			Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindProgress, Seq: -1}),
		})
	}
	for chunk := range slices.Chunk(marks, 1000) {
		if err := g.transact(ctx, chunk, kgo.TryCommit); err != nil {
			return fmt.Errorf("marking run records: %w", err)
		}
	}
	if err := g.deleteOffsets(ctx); err != nil {
		return err
	}
	if err := g.skip(ctx); err != nil {
		return err
	}
	if err := g.transact(ctx, epoch, kgo.TryCommit); err != nil {
		return fmt.Errorf("declaring the epoch: %w", err)
	}
	return nil
}

// skipRecords is how many offsets one transaction skips at most.
const skipRecords = 100_000

// skip uses up the offsets after the mirrored events, by records of aborted transactions: no reader sees them.
func (g *adoption) skip(ctx context.Context) error {
	done, total := 0, int(g.Lost)*len(g.parts)
	for id, p := range g.parts {
		for left := g.Lost; left > 0; {
			records := make([]*kgo.Record, min(left, skipRecords))
			for i := range records {
				records[i] = &kgo.Record{Topic: g.topics.Events, Partition: id}
			}
			if err := g.transact(ctx, records, kgo.TryAbort); err != nil {
				return fmt.Errorf("skipping offsets: %w", err)
			}
			if left == g.Lost && records[0].Offset != p.events.End {
				return ErrWritten
			}
			left -= int64(len(records))
			if done += len(records); g.Progress != nil {
				g.Progress("skipping offsets", done, total)
			}
		}
	}
	ends, err := kafka.Ends(ctx, g.adm, g.topics.Events)
	if err != nil {
		return err
	}
	for id, p := range g.parts {
		p.epoch = ends[id]
	}
	return nil
}

func (g *adoption) transact(ctx context.Context, records []*kgo.Record, how kgo.TransactionEndTry) error {
	if len(records) == 0 {
		return nil
	}
	if err := g.txn.BeginTransaction(); err != nil {
		return fmt.Errorf("beginning transaction: %w", err)
	}
	if err := g.txn.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return kafka.Unacknowledged(err) // the transaction stays open: the next call aborts it
	}
	ending, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := g.txn.EndTransaction(ending, how); err != nil {
		return fmt.Errorf("ending transaction: %w", err)
	}
	return nil
}

// deleteOffsets deletes the offsets of the compactors' group, so that the progress records count: a mirror may have brought higher ones.
func (g *adoption) deleteOffsets(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := g.adm.DeleteGroup(ctx, g.group)
	switch {
	case errors.Is(err, kerr.NonEmptyGroup):
		return g.compactors()
	case err != nil && !errors.Is(err, kerr.GroupIDNotFound):
		return fmt.Errorf("deleting the mirrored offsets of %s: %w", g.group, err)
	}
	return nil
}

func (g *adoption) compactors() error {
	return fmt.Errorf("group %s has members: stop the compactors, wait 10 s, then adopt again", g.group)
}

func (g *adoption) overtaken(err error) error {
	if kafka.IsFenced(err) {
		return fmt.Errorf("%w: %w", ErrOvertaken, err)
	}
	return err
}
