package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Limits on the unpacked size of one fetch response beyond its first batch, for a direct reader of one partition, a direct reader
// of several, and a group reader.
const (
	maxAnswerBytes   = 64 << 20
	maxGroupBytes    = 16 << 20
	groupReaderBytes = 8 << 20
)

// consuming returns the options of every client that reads.
func consuming() []kgo.Opt {
	return []kgo.Opt{
		// The compactor writes in transactions, and nobody may read aborted records.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A poll returns an error for an offset that the log does not have (kerr.OffsetOutOfRange). The default would rewind or skip.
		kgo.ConsumeResetOffset(kgo.NoResetOffset().AtStart()),
		// How long a broker may wait for records before it answers a fetch. A live view may have to wait this long.
		kgo.FetchMaxWait(100 * time.Millisecond),
		// Brokers send a batch above the limit only as the first of a response (KIP-74). With this limit, no partition has to wait for
		// that.
		kgo.FetchMaxPartitionBytes(MaxBatchBytes),
		// Limits one response. The client buffers and unpacks responses; the default of 50 MB would take more memory.
		kgo.FetchMaxBytes(2 * MaxBatchBytes),
	}
}

// GroupOptions are the options of NewGroupReader.
type GroupOptions struct {
	// Group is the consumer group.
	Group string
	// Topics are read completely, from the group's committed offsets, or else from their start.
	Topics []string
	// InstanceID makes the member static (KIP-345): a restart within 10 s moves no partition, and Close does not leave the group (see
	// LeaveGroup). Empty: the member is dynamic.
	InstanceID string
	// OnAssigned, OnRevoked and OnLost are kgo's callbacks; each may be nil. Commit finished records in OnRevoked. In OnLost and
	// afterwards, commit nothing for the lost partitions.
	OnAssigned, OnRevoked, OnLost func(context.Context, *kgo.Client, map[string][]int32)
}

// NewGroupReader returns an at-least-once reader. Commit with Client.CommitRecords or CommitOffsetsSync once the data is durable.
//
// No rebalance happens between PollFetches and AllowRebalance. Call AllowRebalance after each poll, within the rebalance timeout of
// 60 s; otherwise the group removes the member. Records may be recycled (kgo.Record.Recycle). Ignore ErrUnpackLater among a poll's
// errors. Close with CloseAllowingRebalance.
func NewGroupReader(cfg Config, o GroupOptions) (*kgo.Client, error) {
	unpacking, err := limitUnpacking(groupReaderBytes, newFetchPool())
	if err != nil {
		return nil, fmt.Errorf("making group reader: %w", err)
	}
	opts := append(append(consuming(), unpacking...),
		// While one response is processed, the next one of each broker is buffered, unpacked. Small responses have records of many
		// partitions, so that a partition's new records wait less for the backlog of others. A larger batch comes alone.
		kgo.FetchMaxPartitionBytes(256<<10),
		kgo.FetchMaxBytes(2<<20),
		kgo.ConsumerGroup(o.Group),
		kgo.ConsumeTopics(o.Topics...),
		// A rebalance moves only the partitions that must move.
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		// The caller commits after the data is durable. Commits on a timer would not wait for that.
		kgo.DisableAutoCommit(),
		// Otherwise, a partition could be revoked between poll and commit, and the commit could overwrite that of the new owner.
		kgo.BlockRebalanceOnPoll(),
		kgo.RebalanceTimeout(time.Minute),
		// For this long, nobody reads the partitions of a dead member. The default of 45 s is longer than people wait.
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

// LeaveGroup removes a static member from its group, so that its partitions are reassigned at once. Close the member's client
// first. LeaveGroup fails if another process has taken the instance id. The argument member must not be empty, because Kafka would
// then remove any process with the instance id.
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

// LimitUnpacking returns options for a direct reader of several partitions with low latency. For each broker, the reader holds two
// responses: the one that a poll returned and the next. Each has up to 16 MiB and one batch, unpacked. Ignore ErrUnpackLater among
// a poll's errors.
func LimitUnpacking() ([]kgo.Opt, error) { return limitUnpacking(maxGroupBytes, nil) }

// OneAnswer returns options for a direct reader of several partitions with little memory. The reader asks one broker after another,
// and holds two responses, whatever the number of brokers. Each has up to 16 MiB and one batch, unpacked; both together at most 64
// MiB. With three brokers, a record arrives later than with LimitUnpacking, by 24 ms in the median and 55 ms in the 99th
// percentile. Ignore ErrUnpackLater among a poll's errors.
func OneAnswer() ([]kgo.Opt, error) {
	unpacking, err := limitUnpacking(maxGroupBytes, nil)
	if err != nil {
		return nil, err
	}
	return append(unpacking,
		kgo.MaxConcurrentFetches(1),
		// The other brokers' records wait while a broker without records uses this time.
		kgo.FetchMaxWait(25*time.Millisecond),
		// Small responses have records of many partitions.
		kgo.FetchMaxPartitionBytes(512<<10),
		kgo.FetchMaxBytes(4<<20),
	), nil
}

// NewDirectReader returns a reader of partitions of one topic without a group. The argument from maps each partition to its first
// offset, which may be Earliest. The client has no metrics, because there may be many short-lived ones.
//
// For an offset below the log's start or above its end, the poll returns kerr.OffsetOutOfRange, and the reader ignores the
// partition until the caller sets another offset. It skips offsets removed by compaction or aborted transactions.
func NewDirectReader(cfg Config, topic string, from map[int32]int64, extra ...kgo.Opt) (*kgo.Client, error) {
	offsets := make(map[int32]kgo.Offset, len(from))
	for p, at := range from {
		o := kgo.NoResetOffset()
		switch {
		case at == Earliest:
			o = o.AtStart()
		case at < 0:
			return nil, fmt.Errorf("making direct reader of %s: partition %d: %d is not an offset", topic, p, at)
		default:
			o = o.At(at)
		}
		offsets[p] = o
	}
	opts := append(consuming(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	if len(offsets) == 1 { // no poll returns ErrUnpackLater, because the first batch of a response is always unpacked
		unpacking, err := limitUnpacking(maxAnswerBytes, nil)
		if err != nil {
			return nil, fmt.Errorf("making direct reader of %s: %w", topic, err)
		}
		opts = append(opts, unpacking...)
	}
	return cfg.newClient("direct", false, append(opts, extra...)...)
}
