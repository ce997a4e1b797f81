package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CompactorOptions are those of NewCompactorSession.
type CompactorOptions struct {
	// Group is the consumer group; all compactors of a topic set share it.
	Group string
	// InstanceID is the process's own name, stable over restarts. With the group it makes the group
	// instance id and the transactional id, so that a second process of this name fences the first.
	InstanceID string
	Hooks      CompactorHooks
}

// CompactorHooks are called by the client's own goroutines: OnAssigned before offsets are fetched,
// so that a pause in it lets nothing through; then OnOffsetsFetched, with committed offsets and
// metadata; then AdjustFetchOffsets. All may run before NewCompactorSession returns. The session
// hides OnRevoked if partitions were already revoked since the last End.
type CompactorHooks struct {
	OnAssigned, OnRevoked, OnLost func(context.Context, *kgo.Client, map[string][]int32)
	OnOffsetsFetched              func(context.Context, *kgo.Client, *kmsg.OffsetFetchResponse) error
	AdjustFetchOffsets            func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error)
}

// smallFetch is what one answer of a broker may have of a partition where it is unpacked beside other work.
const smallFetch = 128 << 10

// NewCompactorSession joins the group and takes the producer id. A session whose End has returned an
// error is closed and replaced by a new one: kgo may still believe itself inside a transaction.
func NewCompactorSession(ctx context.Context, cfg Config, o CompactorOptions) (*kgo.GroupTransactSession, error) {
	if o.Group == "" || o.InstanceID == "" {
		return nil, fmt.Errorf("making compactor session: group or instance id is missing")
	}
	h := o.Hooks
	if h.OnAssigned == nil || h.OnRevoked == nil || h.OnLost == nil || h.OnOffsetsFetched == nil || h.AdjustFetchOffsets == nil {
		return nil, fmt.Errorf("making compactor session: a hook is missing")
	}
	id := o.Group + "-" + o.InstanceID
	opts, check, err := cfg.base(o.Group, true)
	if err != nil {
		return nil, err
	}
	// One answer waits, unpacked, while another one is processed, for each broker: twice this in memory, as a rule. The compactor keeps
	// nothing of a record that it has processed, and gives it back to the pool.
	unpacking, err := limitUnpacking(32<<20, &fetchPool{})
	if err != nil {
		return nil, fmt.Errorf("making compactor session: %w", err)
	}
	opts = append(opts, producing()...)
	opts = append(opts, consuming()...)
	opts = append(opts, unpacking...)
	opts = append(opts,
		kgo.ConsumerGroup(o.Group),
		kgo.ConsumeTopics(cfg.Topics().Events),
		// Partitions that stay keep their open runs in memory over a rebalance.
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		// Static membership: a restart within the session timeout moves no partition (first commit
		// after 0.8 to 3 s instead of 10 s).
		kgo.InstanceID(id),
		// One id per process, not per partition: the fence is member id, generation and instance id
		// in TxnOffsetCommit.
		kgo.TransactionalID(id),
		// How long a dead owner's partitions stand still. Heartbeats at a tenth of it.
		kgo.SessionTimeout(10*time.Second),
		kgo.HeartbeatInterval(time.Second),
		// How long the others wait for a member that has work to finish.
		kgo.RebalanceTimeout(10*time.Second),
		// Below the session timeout, so that a dead owner's open transaction, which hides all
		// later records from readers, is gone before its partitions have a new owner.
		kgo.TransactionTimeout(8*time.Second),
		// A broker's answer waits, unpacked, while the one before it is processed. Events take 5 to 10
		// times the room then, many short runs that are much alike 40 times, and as much again for what the
		// client notes of each. A larger batch comes alone.
		kgo.FetchMaxPartitionBytes(smallFetch),
		kgo.FetchMaxBytes(512<<10),
		// A fetch costs the same for one event as for a thousand, and what is fetched waits for the commit:
		// at a live pace a broker gathers some before it answers, for no longer than this.
		kgo.FetchMinBytes(32<<10),
		kgo.FetchMaxWait(50*time.Millisecond),
		// Else a partition whose log ends in the marker of a transaction is never known to be read to its end: what
		// rests on that (runs that are silent by the clock) waits for its next record.
		kgo.KeepControlRecords(),
		// The fastest level of zstd: 6 % more bytes than the default one for prose, for 3/4 of its time, and
		// less than a quarter of it where texts hardly repeat.
		kgo.ProducerBatchCompression(kgo.ZstdCompression().WithLevel(int(zstd.SpeedFastest))),
		// A transaction is flushed as a whole; lingering only delays its end.
		kgo.ProducerLinger(0),
		// Not BlockRebalanceOnPoll: with End it deadlocks once the member was thrown out (End waits
		// for a heartbeat or OnLost, the client waits for AllowRebalance).
		// Not RequireStableFetchOffsets: kgo groups always ask for stable offsets.
		kgo.OnPartitionsAssigned(h.OnAssigned),
		kgo.OnPartitionsRevoked(h.OnRevoked),
		kgo.OnPartitionsLost(h.OnLost),
		kgo.OnOffsetsFetched(h.OnOffsetsFetched),
		kgo.AdjustFetchOffsetsFn(h.AdjustFetchOffsets),
	)
	s, err := kgo.NewGroupTransactSession(append(opts, cfg.more()...)...)
	if err != nil {
		return nil, fmt.Errorf("making compactor session %s: %w", id, err)
	}
	if err := check(); err != nil {
		s.Close()
		return nil, fmt.Errorf("making compactor session %s: %w", id, err)
	}
	// InitProducerID is lazy otherwise, and a predecessor's pending TxnOffsetCommit under this id
	// keeps its offsets unstable, so that no partition opens until its transaction times out.
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, _, err := s.Client().ProducerID(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("taking producer id of %s: %w", id, err)
	}
	return s, nil
}
