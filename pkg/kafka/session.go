package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
)

// CompactorOptions are the options of NewCompactorSession.
type CompactorOptions struct {
	// Group is the consumer group; all compactors of a topic set share it.
	Group string
	// InstanceID is the process's name, which stays the same after a restart. The group instance id and the transactional id consist
	// of Group and InstanceID, so that a second process with the same name fences the first.
	InstanceID string
	Hooks      CompactorHooks
}

// CompactorHooks are called by the client's goroutines. OnAssigned is called before offsets are fetched, so a partition that
// OnAssigned pauses returns no record. Then AdjustFetchOffsets is called with the committed offsets. All may run before
// NewCompactorSession returns. The session does not call OnRevoked if partitions were already revoked since the last End.
type CompactorHooks struct {
	OnAssigned, OnRevoked, OnLost func(context.Context, *kgo.Client, map[string][]int32)
	AdjustFetchOffsets            func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error)
}

// NewCompactorSession joins the group and initialises the producer id. If End returns an error, close the session and make a new
// one, because kgo may still be inside a transaction.
func NewCompactorSession(ctx context.Context, cfg Config, o CompactorOptions) (*kgo.GroupTransactSession, error) {
	h := o.Hooks
	id := o.Group + "-" + o.InstanceID
	opts, check, err := cfg.base(o.Group, true)
	if err != nil {
		return nil, err
	}
	// While one response is processed, the next one of each broker is buffered, unpacked, so the memory is twice this. The compactor
	// recycles processed records.
	unpacking, err := limitUnpacking(32<<20, newFetchPool())
	if err != nil {
		return nil, fmt.Errorf("making compactor session: %w", err)
	}
	opts = append(opts, producing()...)
	opts = append(opts, consuming()...)
	opts = append(opts, unpacking...)
	opts = append(opts,
		kgo.ConsumerGroup(o.Group),
		kgo.ConsumeTopics(cfg.Topics().Events),
		// Partitions that do not move keep their open runs in memory during a rebalance.
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		// Static membership: a restart within the session timeout moves no partition. The first commit follows after 0.8 to 3 s, not 10 s.
		kgo.InstanceID(id),
		// One id per process, not per partition, suffices because TxnOffsetCommit fences by member id, generation and instance id.
		kgo.TransactionalID(id),
		// For this long, nobody processes the partitions of a dead owner. The heartbeat interval is a tenth of it.
		kgo.SessionTimeout(10*time.Second),
		kgo.HeartbeatInterval(time.Second),
		// How long the other members wait for one that has work to finish.
		kgo.RebalanceTimeout(10*time.Second),
		// Shorter than the session timeout, so that a dead owner's open transaction, which hides all later records from readers, ends
		// before its partitions get a new owner.
		kgo.TransactionTimeout(8*time.Second),
		// Buffered responses are unpacked. This makes events 5 to 10 times larger, many similar short runs 40 times, and the client's
		// records take as much again. A larger batch comes alone.
		kgo.FetchMaxPartitionBytes(64<<10),
		kgo.FetchMaxBytes(256<<10),
		// A fetch costs the same for one event as for a thousand, and events wait for the commit anyway. Brokers therefore collect events
		// before they answer, but no longer than FetchMaxWait.
		kgo.FetchMinBytes(32<<10),
		kgo.FetchMaxWait(25*time.Millisecond),
		// Without transaction markers, a partition that ends with one would never seem read to its end, and idle runs there would not
		// expire before the next record.
		kgo.KeepControlRecords(),
		// The fastest level of zstd. Compared with the default level, prose takes 6 % more bytes and 3/4 of the time; texts with few
		// repetitions take less than 1/4 of the time.
		kgo.ProducerBatchCompression(kgo.ZstdCompression().WithLevel(int(zstd.SpeedFastest))),
		// A transaction is flushed as a whole; lingering only delays its end.
		kgo.ProducerLinger(0),
		// BlockRebalanceOnPoll is not set, because it deadlocks with End after the group has removed the member: End waits for a
		// heartbeat or OnLost, the client for AllowRebalance. RequireStableFetchOffsets is not needed, because kgo groups always require
		// stable offsets.
		kgo.OnPartitionsAssigned(h.OnAssigned),
		kgo.OnPartitionsRevoked(h.OnRevoked),
		kgo.OnPartitionsLost(h.OnLost),
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
	// While a predecessor's TxnOffsetCommit is pending, offsets are unstable and no partition opens. This ends when its transaction
	// times out or InitProducerID aborts it, which kgo would otherwise call only for the first record.
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, _, err := s.Client().ProducerID(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("taking producer id of %s: %w", id, err)
	}
	return s, nil
}
