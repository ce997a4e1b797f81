package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// StartOffset is the first offset that a partition still has, for NewDirectReader.
	StartOffset int64 = -2
	// EndOffset is the end of a partition, for NewDirectReader.
	EndOffset int64 = -1
)

// Limits of the unpacked size of one answer, beyond its first batch: for a direct reader of one partition, for one of several,
// and for a group reader.
const (
	maxAnswerBytes   = 64 << 20
	maxGroupBytes    = 16 << 20
	groupReaderBytes = 8 << 20
)

// consuming returns the options of every client that reads.
func consuming() []kgo.Opt {
	return []kgo.Opt{
		// The compactor writes in transactions: nobody may read aborted records.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// An offset that the log does not have is an error (kerr.OffsetOutOfRange from the poll). The default would rewind or skip.
		kgo.ConsumeResetOffset(kgo.NoResetOffset().AtStart()),
		// How long a broker waits for records before it answers a fetch. Live views wait this long.
		kgo.FetchMaxWait(100 * time.Millisecond),
		// Brokers send a batch above the limit only as the first one of an answer (KIP-74). With this limit no partition has to wait
		// until it is first.
		kgo.FetchMaxPartitionBytes(MaxBatchBytes),
		// The limit of one answer. The client buffers and unpacks answers; the default of 50 MB would take more memory.
		kgo.FetchMaxBytes(2 * MaxBatchBytes),
	}
}

// GroupOptions are the options of NewGroupReader.
type GroupOptions struct {
	// Group is the consumer group.
	Group string
	// Topics are read whole, from the group's committed offsets, else from their start.
	Topics []string
	// InstanceID makes the member static (KIP-345): a restart within 10 s moves no partition, and Close does not leave the group
	// (see LeaveGroup). Empty: dynamic.
	InstanceID string
	// OnAssigned, OnRevoked and OnLost are kgo's callbacks; each may be nil. Commit finished records in OnRevoked. Commit nothing in
	// OnLost, and nothing of these partitions afterwards.
	OnAssigned, OnRevoked, OnLost func(context.Context, *kgo.Client, map[string][]int32)
}

// NewGroupReader returns an at-least-once reader. Commit with Client.CommitRecords or CommitOffsetsSync after the data is durable.
//
// No rebalance happens between PollFetches and AllowRebalance. Call AllowRebalance after each poll, within the rebalance timeout
// of 60 s, or the group removes the member. Records may be recycled (kgo.Record.Recycle). Close with CloseAllowingRebalance.
// Ignore ErrUnpackLater among a poll's errors.
func NewGroupReader(cfg Config, o GroupOptions) (*kgo.Client, error) {
	unpacking, err := limitUnpacking(groupReaderBytes, &fetchPool{})
	if err != nil {
		return nil, fmt.Errorf("making group reader: %w", err)
	}
	opts := append(append(consuming(), unpacking...),
		// While one answer is processed, each broker's next one is buffered, unpacked. Small answers have records of many partitions,
		// so new records wait less for the backlog of another partition. A larger batch comes alone.
		kgo.FetchMaxPartitionBytes(256<<10),
		kgo.FetchMaxBytes(2<<20),
		kgo.ConsumerGroup(o.Group),
		kgo.ConsumeTopics(o.Topics...),
		// A rebalance moves only the partitions that must move.
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		// The caller commits after the data is durable. Commits on a timer would not wait for that.
		kgo.DisableAutoCommit(),
		// Otherwise a partition could be revoked between poll and commit, and the commit overwrite its new owner's.
		kgo.BlockRebalanceOnPoll(),
		kgo.RebalanceTimeout(time.Minute),
		// Nobody reads a dead member's partitions for this long. The default of 45 s is longer than people wait.
		kgo.SessionTimeout(10*time.Second),
		// A tenth of the session timeout, so that one lost heartbeat causes no rebalance.
		kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(o.OnAssigned),
		kgo.OnPartitionsRevoked(o.OnRevoked),
		kgo.OnPartitionsLost(o.OnLost),
	)
	if o.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(o.InstanceID))
	}
	return cfg.newClient("group-"+o.Group, true, opts...)
}

// LeaveGroup removes a static member, whose client is closed, from its group, so that its partitions are reassigned at once. It
// fails if another process has the instance id by now. member must not be empty: Kafka would remove any process with the instance
// id.
func LeaveGroup(ctx context.Context, cfg Config, group, member, instance string) error {
	cl, err := cfg.newClient("leave", false)
	if err != nil {
		return err
	}
	defer cl.Close()
	leaves := kmsg.NewLeaveGroupRequestMember()
	leaves.MemberID, leaves.InstanceID = member, &instance
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.Members = group, append(req.Members, leaves)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && len(resp.Members) == 1 {
		err = kerr.ErrorForCode(resp.Members[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("leaving group %s as %s: %w", group, instance, err)
	}
	return nil
}

// LimitUnpacking returns options for a direct reader of several partitions with low latency. For each broker it holds two
// answers, the one that a poll returned and the next, each of 16 MiB and one batch, unpacked. Ignore ErrUnpackLater among a
// poll's errors.
func LimitUnpacking() ([]kgo.Opt, error) { return limitUnpacking(maxGroupBytes) }

// OneAnswer returns options for a direct reader of several partitions with little memory. It asks one broker after another, and
// holds two answers whatever the number of brokers: each of 16 MiB and one batch, unpacked, 64 MiB in all at the worst. With
// three brokers a record comes 24 ms later than with LimitUnpacking in the median, 55 ms in the 99th percentile. Ignore
// ErrUnpackLater among a poll's errors.
func OneAnswer() ([]kgo.Opt, error) {
	unpacking, err := limitUnpacking(maxGroupBytes)
	if err != nil {
		return nil, err
	}
	return append(unpacking,
		kgo.MaxConcurrentFetches(1),
		// The other brokers wait for one that has no records.
		kgo.FetchMaxWait(25*time.Millisecond),
		// Small answers have records of many partitions.
		kgo.FetchMaxPartitionBytes(512<<10),
		kgo.FetchMaxBytes(4<<20),
	), nil
}

// NewDirectReader returns a reader of partitions of one topic without a group. from has the first offset of each; StartOffset and
// EndOffset are allowed. The client has no metrics: there may be many, for a short time each.
//
// An offset below the log's start or above its end is kerr.OffsetOutOfRange from the poll, and nothing is read of the partition
// until the caller sets another offset. Offsets removed by compaction or aborted transactions are skipped.
func NewDirectReader(cfg Config, topic string, from map[int32]int64, extra ...kgo.Opt) (*kgo.Client, error) {
	offsets := make(map[int32]kgo.Offset, len(from))
	for p, at := range from {
		o := kgo.NoResetOffset()
		switch {
		case at == StartOffset:
			o = o.AtStart()
		case at == EndOffset:
			o = o.AtEnd()
		case at < 0:
			return nil, fmt.Errorf("making direct reader of %s: partition %d: %d is not an offset", topic, p, at)
		default:
			o = o.At(at)
		}
		offsets[p] = o
	}
	opts := append(consuming(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	if len(offsets) == 1 { // no poll has ErrUnpackLater: the first batch of an answer is always unpacked
		unpacking, err := limitUnpacking(maxAnswerBytes)
		if err != nil {
			return nil, fmt.Errorf("making direct reader of %s: %w", topic, err)
		}
		opts = append(opts, unpacking...)
	}
	return cfg.newClient("direct", false, append(opts, extra...)...)
}
