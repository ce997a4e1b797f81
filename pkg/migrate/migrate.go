package migrate

import (
	"cmp"
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

// Options name the two topic sets.
type Options struct {
	// From is the old topic set, ToPrefix the new one's prefix on the same cluster.
	From     kafka.Config
	ToPrefix string
	// Spec is the specification of the new topics. Partitions and retentions of 0 are those of the old set.
	Spec kafka.TopicSpec
	// Group and ToGroup are the old and the new compactors' consumer groups; empty is the default one.
	Group, ToGroup string
	// DryRun writes nothing.
	DryRun bool
	// Progress is called with the current step and its progress, in records; it may be nil.
	Progress func(what string, done, total int)
}

// Report is the result of Run.
type Report struct {
	FromPrefix     string `json:"fromPrefix"`
	ToPrefix       string `json:"toPrefix"`
	FromPartitions int32  `json:"fromPartitions"`
	ToPartitions   int32  `json:"toPartitions"`
	// Done means that the new set is complete and proved. Otherwise Waiting is what has to happen first; it may be empty if there are
	// differences or DryRun is set.
	Done    bool   `json:"done"`
	Waiting string `json:"waiting,omitempty"`
	DryRun  bool   `json:"dryRun,omitempty"`
	// Copied are the numbers of records that this call has copied, by the names in state.Next.
	Copied map[string]int `json:"copied"`
	// Left is the number of raw events that were not copied when this call began.
	Left int `json:"left"`
	// Proof is the result of the comparison; nil before the copy is complete.
	Proof *Proof `json:"proof,omitempty"`
}

// ErrInUse means that the new topic set has other records.
var ErrInUse = errors.New("the new topic set is in use")

// ErrExpired means that raw events expired before they were copied.
var ErrExpired = errors.New("raw events expired before they were copied")

// askTimeout bounds a group of requests to the brokers.
const askTimeout = 30 * time.Second

// settleTimeout is how long a call waits for the end of open transactions. Brokers abort those of dead compactors after 8 s.
const settleTimeout = 30 * time.Second

// migration is one run of Run.
type migration struct {
	Options
	from, to  kafka.Config
	old, new  kafka.Topics
	counts    [2]int32         // partitions of the two sets
	retention time.Duration    // of the old set's raw events; negative is for ever
	keeps     [2]time.Duration // retentions of raw events and dead letters of the complete new set
	adm       *kadm.Client
	txn       *kgo.Client
	state     *state
	report    Report
	committed map[int32]int64 // the old compactors' offsets
	signed    bool            // from these offsets on, they required ingest's signature
	// ends are the ends of the old set's topics that quiet found. The copy ends there.
	ends map[string]map[int32]int64
}

// Run copies all records that are not copied yet. It may run while the old set is in use, and again. After the old set's compactors have
// processed all events and are stopped, it completes the new set.
func Run(ctx context.Context, o Options) (Report, error) {
	g := &migration{Options: o, from: reading(o.From, readBytes)}
	g.to = g.from
	g.to.TopicPrefix = o.ToPrefix
	g.old, g.new = g.from.Topics(), g.to.Topics()
	g.Group = cmp.Or(g.Group, g.from.CompactorGroup())
	g.ToGroup = cmp.Or(g.ToGroup, g.to.CompactorGroup())
	if g.from.TopicPrefix == o.ToPrefix {
		return Report{}, errors.New("copying topics: the new prefix is the old one")
	}
	g.report = Report{FromPrefix: g.from.TopicPrefix, ToPrefix: o.ToPrefix, Copied: map[string]int{}, DryRun: o.DryRun}
	var err error
	if g.adm, err = kafka.NewAdmin(g.from); err != nil {
		return Report{}, err
	}
	defer g.adm.Close()
	if err := g.run(ctx); err != nil {
		return g.report, fmt.Errorf("copying topics: %w", err)
	}
	return g.report, nil
}

func (g *migration) run(ctx context.Context) error {
	err := g.prepare(ctx)
	if err != nil {
		return err
	}
	if g.DryRun {
		return g.look(ctx)
	}
	// This fences an earlier call, and makes all that it has committed readable.
	if g.txn, err = kafka.NewTransactor(ctx, g.to, g.to.TopicPrefix+"skein-topics-migrate"); err != nil {
		return err
	}
	defer g.txn.Close()
	if g.state, err = readState(ctx, g.adm, g.to); err != nil {
		return err
	}
	if g.state == nil || !g.state.Done {
		if err := g.keep(ctx, forever, forever); err != nil {
			return err
		}
	}
	if err := g.begin(ctx); err != nil {
		return err
	}
	if err := g.copyEvents(ctx); err != nil {
		return err
	}
	if g.state.Done { // by an earlier call: the new set may be in use
		g.report.Done = true
		return nil
	}
	if g.report.Waiting, err = g.quiet(ctx); err != nil || g.report.Waiting != "" {
		return err
	}
	return g.complete(ctx)
}

// look finds what a dry run reports.
func (g *migration) look(ctx context.Context) error {
	s, err := readState(ctx, g.adm, g.to)
	if err != nil && !errors.Is(err, kafka.ErrNoTopic) && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return err
	}
	spans, err := kafka.Spans(ctx, g.adm, g.old.Events)
	if err != nil {
		return err
	}
	for p, span := range spans {
		if s != nil {
			span.Start = max(span.Start, s.at(nextEvents, p))
		}
		g.report.Left += int(span.End - span.Start)
	}
	if g.report.Done = s != nil && s.Done; !g.report.Done {
		g.report.Waiting, err = g.quiet(ctx)
	}
	return err
}

// prepare reads the old set and makes the new set's topics.
func (g *migration) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var err error
	if g.counts[0], err = kafka.PartitionCount(ctx, g.adm, g.old); err != nil {
		return err
	}
	spec := g.Spec
	if spec.Partitions == 0 {
		spec.Partitions = g.counts[0]
	}
	reports, err := kafka.CheckTopics(ctx, g.from, kafka.TopicSpec{})
	if err != nil {
		return err
	}
	for _, r := range reports {
		ms, err := time.ParseDuration(r.Settings["retention.ms"] + "ms")
		if err != nil {
			continue // compacted
		}
		if r.Topic == g.old.Events {
			g.retention = ms
			spec.EventsRetention = cmp.Or(spec.EventsRetention, ms)
		}
		if r.Topic == g.old.DeadLetters && spec.DeadLettersRetention == 0 {
			spec.DeadLettersRetention = ms
		}
		if spec.Replication == 0 {
			spec.Replication = int16(r.Replication)
		}
	}
	g.report.FromPartitions, g.report.ToPartitions = g.counts[0], spec.Partitions
	if g.DryRun {
		return nil
	}
	g.keeps = [2]time.Duration{spec.EventsRetention, spec.DeadLettersRetention}
	if g.counts[1], err = kafka.EnsureTopics(ctx, g.to, spec); err != nil {
		return err
	}
	if g.Spec.Partitions != 0 && g.counts[1] != g.Spec.Partitions {
		return fmt.Errorf("%w: the new set has %d partitions already, %d are asked for", ErrInUse, g.counts[1], g.Spec.Partitions)
	}
	g.report.ToPartitions = g.counts[1]
	return makeStateTopic(ctx, g.adm, g.to, spec.Replication)
}

// forever is the retention of topics that keep all records.
const forever time.Duration = -1

// keep sets the retentions of the new set. Until the set is complete they are forever: copies have the timestamps of the originals, and
// brokers, which delete whole segments, would delete some copies before the originals.
func (g *migration) keep(ctx context.Context, events, letters time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := kafka.AlterTopics(ctx, g.to, kafka.TopicSpec{EventsRetention: events, DeadLettersRetention: letters}); err != nil {
		return fmt.Errorf("setting the retention of the new set: %w", err)
	}
	return nil
}

// begin commits the first state or checks an existing one, and reserves offsets for events that are gone.
func (g *migration) begin(ctx context.Context) error {
	details, err := g.adm.ListTopics(ctx, g.old.Events)
	if err != nil {
		return fmt.Errorf("asking for the id of %s: %w", g.old.Events, err)
	}
	id := details[g.old.Events].ID.String()
	if g.state == nil {
		if err := g.first(ctx, id); err != nil {
			return err
		}
	}
	if g.state.TopicID != id {
		return fmt.Errorf("%w: it is a copy of another topic set than %s", ErrInUse, g.old.Events)
	}
	if !g.state.Done && !g.state.begun() {
		if err := g.makeRoom(ctx); err != nil {
			return err
		}
	}
	// It deletes the records that reserve offsets, so readers of these offsets get the error for offsets that are gone.
	before := kadm.Offsets{}
	for p := range g.counts[1] {
		before.Add(kadm.Offset{Topic: g.new.Events, Partition: p, At: g.state.Rooms[p]})
	}
	starts, err := g.adm.ListStartOffsets(ctx, g.new.Events)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("asking for offsets of %s: %w", g.new.Events, err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Offset >= g.state.Rooms[o.Partition] {
			delete(before[g.new.Events], o.Partition)
		}
	})
	if err := g.deleteBefore(ctx, before); err != nil {
		return fmt.Errorf("deleting what stands for raw events that are gone from %s: %w", g.new.Events, err)
	}
	return nil
}

func (g *migration) deleteBefore(ctx context.Context, offsets kadm.Offsets) error {
	n := 0
	offsets.Each(func(kadm.Offset) { n++ })
	if n == 0 {
		return nil
	}
	deleted, err := g.adm.DeleteRecords(ctx, offsets)
	if err == nil {
		err = deleted.Error()
	}
	return err
}

// first checks that the new set is empty, and commits the first state.
func (g *migration) first(ctx context.Context, id string) error {
	for _, topic := range g.new.All() {
		for m, err := range g.all(ctx, g.to, topic) {
			if err != nil {
				return err
			}
			return fmt.Errorf("%w: partition %d of %s has records", ErrInUse, m.Partition, topic)
		}
	}
	spans, err := kafka.Spans(ctx, g.adm, g.old.Events)
	if err != nil {
		return err
	}
	s := &state{TopicID: id, Start: map[int32]int64{}, Next: map[string]map[int32]int64{}}
	for p, span := range spans {
		s.Start[p] = span.Start
		s.set(nextEvents, p, span.Start)
	}
	return g.commit(ctx, s, nil)
}

// makeRoom reserves offsets at the start of each new partition for the first and the last event of runs whose raw events are gone. Until
// the first event is copied, each call adds offsets for events that have expired since.
func (g *migration) makeRoom(ctx context.Context) error {
	need, err := g.needRoom(ctx)
	if err != nil {
		return err
	}
	// Records of a killed call also count: they have offsets, and nobody will read them.
	ends, err := kafka.Ends(ctx, g.adm, g.new.Events)
	if err != nil {
		return err
	}
	var room []*kgo.Record
	for q := range g.counts[1] {
		for range need[q] - ends[q] {
			room = append(room, &kgo.Record{Topic: g.new.Events, Partition: q, Value: []byte("-")})
		}
	}
	for part := range slices.Chunk(room, chunkRecords) {
		if err := g.commit(ctx, g.state, part); err != nil {
			return err
		}
	}
	s := g.state.clone()
	if s.Rooms, err = kafka.Ends(ctx, g.adm, g.new.Events); err != nil || maps.Equal(s.Rooms, g.state.Rooms) {
		return err
	}
	return g.commit(ctx, s, nil)
}

// needRoom returns how many reserved offsets each new partition needs. A thread needs one for each first or last event of its runs that
// is gone, or may expire before it is copied; a partition needs the maximum of its threads. It needs at least two if a dead letter's
// event is gone: the dead letter gets the position of the first, and deadletter.Retry finds that the next offset is gone too, so that
// earlier retries are unknown.
func (g *migration) needRoom(ctx context.Context) (map[int32]int64, error) {
	spans, err := kafka.Spans(ctx, g.adm, g.old.Events)
	if err != nil {
		return nil, err
	}
	gone, expired := map[int32]int64{}, false // all events below these offsets
	for p, span := range spans {
		gone[p] = span.Start
		expired = expired || span.Start > 0
	}
	if g.retention > 0 { // brokers may delete events during this call
		soon, err := kafka.OffsetsAt(ctx, g.adm, g.old.Events, time.Now().Add(g.retention/10-g.retention))
		if err != nil {
			return nil, err
		}
		for p, at := range soon {
			gone[p] = max(gone[p], at)
			expired = expired || at > 0
		}
	}
	need := map[int32]int64{}
	if !expired {
		return need, nil
	}
	threads := map[string]int64{}
	for m, err := range g.latest(ctx, g.from, g.old.Runs) {
		if err != nil {
			return nil, err
		}
		if headers, err := record.ParseHeaders(m.Headers); err != nil || len(m.Value) == 0 || headers.Kind != record.KindRun {
			continue // findPlaces returns the error
		}
		r, err := record.DecodeRun(m.Value)
		if err != nil {
			return nil, fmt.Errorf("reading run record %d:%d: %w", m.Partition, m.Offset, err)
		}
		thread, q, err := g.threadOf(m.Key)
		if err != nil {
			return nil, fmt.Errorf("reading run record %d:%d: %w", m.Partition, m.Offset, err)
		}
		for _, end := range []int64{r.Raw.First, lastOf(r.Raw)} {
			if end < gone[r.Raw.Partition] {
				threads[thread]++
				need[q] = max(need[q], threads[thread])
			}
		}
	}
	for m, err := range g.all(ctx, g.from, g.old.DeadLetters) {
		if err != nil {
			return nil, err
		}
		if at, ok := positionIn(m, record.HeaderPosition); ok && at.Offset < gone[at.Partition] {
			q := record.Partition(m.Key, g.counts[1])
			need[q] = max(need[q], 2)
		}
	}
	return need, nil
}

// quiet returns what has to happen before the copy can be completed, or "". Nobody may write to the old set any more, its compactors must
// have processed all events and be stopped, and all events must be copied.
func (g *migration) quiet(ctx context.Context) (waiting string, err error) {
	for _, group := range []string{g.Group, g.ToGroup} {
		described, err := g.adm.DescribeGroups(ctx, group)
		if err == nil {
			err = described.Error()
		}
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return "", fmt.Errorf("asking for the members of %s: %w", group, err)
		}
		if len(described[group].Members) > 0 {
			return fmt.Sprintf("group %s has members: stop its compactors, and nobody may write to %s any more", group, g.old.Events), nil
		}
	}
	var offsets kadm.OffsetResponses
	if waiting, err = g.settle(ctx, func() (open string, err error) {
		if open, err = g.open(ctx, g.old.All()...); err != nil || open != "" {
			return open, err
		}
		if offsets, err = g.adm.FetchOffsets(kadm.RequireStable(ctx), g.Group); err == nil {
			err = offsets.Error()
		}
		switch {
		case errors.Is(err, kerr.UnstableOffsetCommit):
			return fmt.Sprintf("a transaction with offsets of %s has to end", g.Group), nil
		case err != nil && !errors.Is(err, kerr.GroupIDNotFound):
			return "", fmt.Errorf("asking for the offsets of %s: %w", g.Group, err)
		}
		return "", nil
	}); err != nil || waiting != "" {
		return waiting, err
	}
	// The ends of events come last, so that they include the events of all records below the other ends.
	ends := map[string]map[int32]int64{}
	var spans map[int32]kafka.Span
	for _, topic := range []string{g.old.Runs, g.old.Snapshots, g.old.DeadLetters, g.old.Events} {
		if spans, err = kafka.Spans(ctx, g.adm, topic); err != nil {
			return "", err
		}
		ends[topic] = map[int32]int64{}
		for p, span := range spans {
			ends[topic][p] = span.End
		}
	}
	g.ends, g.committed, g.signed = ends, map[int32]int64{}, true
	for p, span := range spans {
		decided := span.Start
		if o, ok := offsets.Lookup(g.old.Events, p); ok && o.At >= 0 {
			g.committed[p], decided = o.At, o.At
			var m record.Progress
			if o.Metadata != "" {
				if m, err = record.ParseMetadata(o.Metadata); err != nil {
					return "", err
				}
				if decided = m.Processed; m.Partitions != g.counts[0] {
					return "", fmt.Errorf("%w: the offsets of %s belong to %d partitions, %s has %d",
						kafka.ErrPartitionCounts, g.Group, m.Partitions, g.old.Events, g.counts[0])
				}
			}
			g.signed = g.signed && m.Signed != 0 && m.Signed <= o.At+1
		}
		if m, err := g.firstEvent(ctx, p, max(span.Start, decided), span.End); err != nil {
			return "", err
		} else if m != nil {
			return fmt.Sprintf("the compactors have not decided event %d:%d: let them come to the end, then stop them", p, m.Offset), nil
		}
	}
	if g.state == nil { // a dry run has copied nothing
		return "", nil
	}
	for p, span := range spans {
		next := g.state.at(nextEvents, p)
		m, err := g.firstEvent(ctx, p, max(span.Start, next), span.End)
		if err != nil {
			return "", err
		}
		if m != nil || span.Start > next { // expired ones may have been events
			return fmt.Sprintf("events came to partition %d of %s while it copied: see that nobody writes to it, and run this again", p,
				g.old.Events), nil
		}
	}
	return "", nil
}

// firstEvent returns the first record of a partition of the old raw events in a range of offsets; nil if there is none.
func (g *migration) firstEvent(ctx context.Context, partition int32, from, to int64) (*kgo.Record, error) {
	for m, err := range kafka.Scan(ctx, g.from, g.old.Events, map[int32]kafka.Span{partition: {Start: from, End: to}}) {
		return m, err
	}
	return nil, nil
}

// settle calls ask until no transaction is open, or returns the one that is still open after settleTimeout. A dry run calls it once.
func (g *migration) settle(ctx context.Context, ask func() (open string, err error)) (string, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(settleTimeout); ; {
		open, err := ask()
		if err != nil || open == "" || g.DryRun || time.Now().After(end) {
			return open, err
		}
		if g.Progress != nil {
			g.Progress("waiting: "+open, 0, 1)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
	}
}

// open returns a text about a partition with records that cannot be read because of an open transaction, or "". Brokers write the markers
// that end a transaction some time after its end, to one partition after another.
func (g *migration) open(ctx context.Context, topics ...string) (string, error) {
	for _, topic := range topics {
		unread, err := kafka.Unsettled(ctx, g.adm, topic)
		if err != nil {
			return "", err
		}
		for _, p := range slices.Sorted(maps.Keys(unread)) {
			return fmt.Sprintf("a transaction on partition %d of %s has to end: what lies from %d to %d cannot be read", p, topic,
				unread[p].Start, unread[p].End), nil
		}
	}
	return "", nil
}

// settled waits for the end of open transactions on topics. If one stays open, Waiting in the report names it.
func (g *migration) settled(ctx context.Context, topics ...string) (ok bool, err error) {
	g.report.Waiting, err = g.settle(ctx, func() (string, error) { return g.open(ctx, topics...) })
	return err == nil && g.report.Waiting == "", err
}

// complete copies the derived records, compares the two sets, commits the new compactors' offsets, and marks the copy as done.
func (g *migration) complete(ctx context.Context) error {
	if settled, err := g.settled(ctx, g.new.Events); !settled {
		return err
	}
	p, err := g.findPlaces(ctx, g.committed)
	if err != nil {
		return err
	}
	if err := g.copyDerived(ctx, p); err != nil {
		return err
	}
	if settled, err := g.settled(ctx, g.new.All()...); !settled {
		return err
	}
	ends, err := kafka.Spans(ctx, g.adm, g.new.Events)
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	var progress []*kgo.Record
	for _, q := range slices.Sorted(maps.Keys(ends)) {
		committed, ok := p.committed[q]
		if !ok {
			committed = ends[q].End
		}
		reached := record.Progress{Next: committed, Committed: committed, Processed: ends[q].End, Partitions: g.counts[1]}
		if g.signed { // the new compactors leave out what the old ones have refused
			reached.Signed = 1
		}
		offsets.Add(kadm.Offset{
			Topic: g.new.Events, Partition: q, At: committed, LeaderEpoch: -1, Metadata: reached.Metadata(),
		})
		progress = append(progress, &kgo.Record{
			Topic: g.new.Runs, Partition: q, Key: []byte(record.ProgressKey), Value: record.EncodeProgress(reached),
			Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindProgress, Seq: -1}),
		})
	}
	proof, err := g.prove(ctx, p)
	if err != nil {
		return err
	}
	if len(proof.Differences) > 0 {
		g.report.Proof = proof
		return nil
	}
	was := g.ends
	if g.report.Waiting, err = g.quiet(ctx); err != nil || g.report.Waiting != "" {
		return err
	}
	for _, topic := range g.old.All() {
		if !maps.Equal(was[topic], g.ends[topic]) {
			g.report.Waiting = fmt.Sprintf("something was written to %s while it copied: "+
				"see that the old set's compactors stay stopped, and run this again", topic)
			return nil
		}
	}
	g.report.Proof = proof
	if err := g.keep(ctx, g.keeps[0], g.keeps[1]); err != nil {
		return err
	}
	if err := g.adm.CommitAllOffsets(ctx, g.ToGroup, offsets); err != nil {
		return fmt.Errorf("committing the offsets of %s: %w", g.ToGroup, err)
	}
	s := g.state.clone()
	s.Done = true
	if err := g.commit(ctx, s, progress); err != nil {
		return err
	}
	g.report.Done = true
	return nil
}
