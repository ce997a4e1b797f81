package apache

import (
	"strconv"

	"github.com/skeinhq/skein/pkg/kafka"
)

// Settings are the broker settings of a cluster for tests, apart from where it listens and keeps its
// data: small, quick to notice what a test does to it, and with three nodes as safe as production.
func Settings(nodes int) map[string]string {
	replicas, inSync := "1", "1"
	if nodes >= 3 {
		replicas, inSync = "3", "2"
	}
	return map[string]string{
		"process.roles":                    "broker,controller",
		"controller.listener.names":        "CONTROLLER",
		"default.replication.factor":       replicas,
		"min.insync.replicas":              inSync,
		"auto.create.topics.enable":        "false",
		"message.max.bytes":                strconv.Itoa(kafka.MaxBatchBytes),
		"offsets.topic.replication.factor": replicas,
		// Each partition of an internal topic costs files, and on every start time.
		"offsets.topic.num.partitions":                     "8",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    inSync,
		"transaction.state.log.num.partitions":             "8",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            inSync,
		"share.coordinator.state.topic.num.partitions":     "4",
		// The first member of a group need not wait for others.
		"group.initial.rebalance.delay.ms": "0",
		// How soon a killed node's partitions get another leader, and how soon the same node may
		// register again: 9 s otherwise.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
		// Under KIP-848 the session timeout is the broker's: 45 s otherwise.
		"group.consumer.session.timeout.ms":                           "6000",
		"group.consumer.min.session.timeout.ms":                       "6000",
		"group.consumer.heartbeat.interval.ms":                        "1000",
		"group.consumer.min.heartbeat.interval.ms":                    "1000",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
		// Taken out of the heap: 128 MiB otherwise.
		"log.cleaner.dedupe.buffer.size": "16777216",
		// Lets tests see compaction and retention at work: 15 s and 30 s otherwise.
		"log.cleaner.backoff.ms":    "500",
		"log.initial.task.delay.ms": "500",
	}
}
