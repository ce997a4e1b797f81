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
	// EndOffset is the end of a partition, for NewDirectReader: only what comes later.
	EndOffset int64 = -1
)

// maxAnswerBytes is about what an answer to a direct reader of one partition unpacks to at most, maxGroupBytes to a reader of several. FetchMaxBytes
// bounds what is sent.
const (
	maxAnswerBytes = 64 << 20
	maxGroupBytes  = 16 << 20
)

// consuming are the options of every client that reads.
func consuming() []kgo.Opt {
	return []kgo.Opt{
		// The compactor writes in transactions: what it aborts must be seen by nobody.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// An offset that the log does not have is an error (kerr.OffsetOutOfRange from the poll),
		// not a reason to go on elsewhere: the default rewinds by a minute, "latest" would skip.
		kgo.ConsumeResetOffset(kgo.NoResetOffset().AtStart()),
		// How long a broker holds a fetch that has nothing to give. Live views wait for this.
		kgo.FetchMaxWait(100 * time.Millisecond),
		// A batch is given whole even above the limit (KIP-74), but only the first of an answer:
		// with this no partition waits for its turn to be first.
		kgo.FetchMaxPartitionBytes(MaxBatchBytes),
		// Of one answer. Answers are buffered and unpacked, so this, not the default of 50 MB, is
		// what bounds a reader's memory.
		kgo.FetchMaxBytes(2 * MaxBatchBytes),
	}
}

// GroupOptions are those of NewGroupReader.
type GroupOptions struct {
	// Group is the consumer group.
	Group string
	// Topics are read whole, from the group's committed offsets, else from their start.
	Topics []string
	// InstanceID makes the member static (KIP-345): a restart within 10 s then moves no partition. So
	// Close does not leave the group: see LeaveGroup. Empty: dynamic.
	InstanceID string
	// OnAssigned, OnRevoked and OnLost are called as kgo describes; each may be nil. Commit what is
	// done in OnRevoked; commit nothing in OnLost and nothing of these partitions afterwards.
	OnAssigned, OnRevoked, OnLost func(context.Context, *kgo.Client, map[string][]int32)
}

// groupReaderBytes is about what an answer to a group reader unpacks to at most.
const groupReaderBytes = 8 << 20

// NewGroupReader makes an at-least-once reader. The caller commits: call Client.CommitRecords or
// CommitOffsetsSync after the data is durable. No rebalance happens between PollFetches and
// AllowRebalance, so what was polled can be finished and committed while it is still owned: call
// AllowRebalance after each poll, within the rebalance timeout of 60 s, or the group throws the
// member out. A record may be given back (kgo.Record.Recycle) once nothing of it is needed. Close with
// CloseAllowingRebalance. ErrUnpackLater among the errors of a poll is none.
func NewGroupReader(cfg Config, o GroupOptions) (*kgo.Client, error) {
	if o.Group == "" || len(o.Topics) == 0 {
		return nil, fmt.Errorf("making group reader: group or topics are missing")
	}
	unpacking, err := limitUnpacking(groupReaderBytes, &fetchPool{})
	if err != nil {
		return nil, fmt.Errorf("making group reader: %w", err)
	}
	opts := append(append(consuming(), unpacking...),
		// A broker's answer waits, unpacked, while the one before it is worked on. Small ones have something of many partitions:
		// what is new on one waits for little of the backlog of another. A larger batch comes alone.
		kgo.FetchMaxPartitionBytes(256<<10),
		kgo.FetchMaxBytes(2<<20),
		kgo.ConsumerGroup(o.Group),
		kgo.ConsumeTopics(o.Topics...),
		// A member that comes or goes moves only the partitions that must move.
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		// The offset follows the data: commits on a timer would run ahead of it.
		kgo.DisableAutoCommit(),
		// Without it a partition can be gone between poll and commit, and its new owner's commit
		// be overwritten by ours.
		kgo.BlockRebalanceOnPoll(),
		kgo.RebalanceTimeout(time.Minute),
		// A dead member's partitions stand still this long. The default of 45 s is longer than
		// people wait.
		kgo.SessionTimeout(10*time.Second),
		// A tenth of the session: one lost heartbeat is no reason for a rebalance.
		kgo.HeartbeatInterval(time.Second),
	)
	if o.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(o.InstanceID))
	}
	if o.OnAssigned != nil {
		opts = append(opts, kgo.OnPartitionsAssigned(o.OnAssigned))
	}
	if o.OnRevoked != nil {
		opts = append(opts, kgo.OnPartitionsRevoked(o.OnRevoked))
	}
	if o.OnLost != nil {
		opts = append(opts, kgo.OnPartitionsLost(o.OnLost))
	}
	return cfg.newClient("group-"+o.Group, true, opts...)
}

// LeaveGroup takes a static member, whose client was closed, out of its group, so that the others have its partitions at once.
// The member id is not empty: without one, Kafka takes out whichever process has the instance id. Where another has taken it since, that is an error.
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

// LimitUnpacking returns options for a direct reader of several partitions that must not wait for any of them. Of each broker it holds two answers, the
// one that a poll gave and the next, of some 16 MiB and a batch each, unpacked. Its polls may have ErrUnpackLater, which is no error.
// OneAnswer holds less, but with three brokers it has a record 24 ms later in the median, 55 ms in the 99th percentile.
func LimitUnpacking() ([]kgo.Opt, error) { return limitUnpacking(maxGroupBytes) }

// OneAnswer returns options for a direct reader of several partitions that looks for few records among many, beside other work. LimitUnpacking
// bounds the answer of each broker; here one broker is asked after the other, and the next one once the answer before was given. So the
// reader holds an answer that is worked on and one that comes next, whatever the number of brokers: two times 16 MiB and a batch,
// unpacked, some 64 MiB at the worst. Its polls may have ErrUnpackLater, which is none.
func OneAnswer() ([]kgo.Opt, error) {
	unpacking, err := limitUnpacking(maxGroupBytes)
	if err != nil {
		return nil, err
	}
	return append(unpacking,
		kgo.MaxConcurrentFetches(1),
		// A broker with nothing to give holds up the others.
		kgo.FetchMaxWait(25*time.Millisecond),
		// Small ones have something of many partitions.
		kgo.FetchMaxPartitionBytes(512<<10),
		kgo.FetchMaxBytes(4<<20),
	), nil
}

// NewDirectReader makes a reader of named partitions of one topic, outside of any group: from is the
// offset to begin at for each (StartOffset and EndOffset are allowed). It has no metrics, as it may
// live for a moment only and there may be many.
//
// An offset below the log's start or above its end is kerr.OffsetOutOfRange from the poll, and the
// partition stands still until the caller sets another. Offsets that compaction or aborted
// transactions took away are passed over: what is read may begin above what was asked for.
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
	if len(offsets) == 1 { // the first batch of an answer is always given: no poll has ErrUnpackLater
		unpacking, err := limitUnpacking(maxAnswerBytes)
		if err != nil {
			return nil, fmt.Errorf("making direct reader of %s: %w", topic, err)
		}
		opts = append(opts, unpacking...)
	}
	return cfg.newClient("direct", false, append(opts, extra...)...)
}
