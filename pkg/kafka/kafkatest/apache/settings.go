package apache

import (
	"strconv"

	"github.com/skeinhq/skein/pkg/kafka"
)

// Rack returns the rack of a node: each has its own.
func Rack(node int) string { return "rack-" + strconv.Itoa(node) }

// Settings returns the broker settings of a test cluster, except for listeners and data folders. The cluster is small
// and reacts quickly to a test's actions. With three nodes, it is as safe as in production.
func Settings(nodes int) map[string]string {
	replicas, inSync := "1", "1"
	if nodes >= 3 {
		replicas, inSync = "3", "2"
	}
	return map[string]string{
		"process.roles": "broker,controller",
		// Clients that name a rack read from its node, if that has the partition.
		"replica.selector.class":           "org.apache.kafka.common.replica.RackAwareReplicaSelector",
		"controller.listener.names":        "CONTROLLER",
		"default.replication.factor":       replicas,
		"min.insync.replicas":              inSync,
		"auto.create.topics.enable":        "false",
		"message.max.bytes":                strconv.Itoa(kafka.MaxBatchBytes),
		"offsets.topic.replication.factor": replicas,
		// Each partition of an internal topic costs files, and time at each start.
		"offsets.topic.num.partitions":                     "8",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    inSync,
		"transaction.state.log.num.partitions":             "8",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            inSync,
		"share.coordinator.state.topic.num.partitions":     "4",
		// Do not wait for more members before the first rebalance of a group.
		"group.initial.rebalance.delay.ms": "0",
		// After this time (default 9 s), a killed node's partitions get a new leader, and the node may register again.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
		// With KIP-848, the broker sets the session timeout (default 45 s).
		"group.consumer.session.timeout.ms":                           "6000",
		"group.consumer.min.session.timeout.ms":                       "6000",
		"group.consumer.heartbeat.interval.ms":                        "1000",
		"group.consumer.min.heartbeat.interval.ms":                    "1000",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
		// This buffer is in the heap (default 128 MiB).
		"log.cleaner.dedupe.buffer.size": "16777216",
		// Short, so that tests can observe compaction and retention (defaults 15 s and 30 s).
		"log.cleaner.backoff.ms":    "500",
		"log.initial.task.delay.ms": "500",
	}
}
