// Package embedded is the Kafka broker of "skein dev". It runs franz-go's kfake on one folder and
// over TCP, so that other Kafka clients can connect. The broker is durable, but only for
// development: kfake ends a transaction partition by partition, so a kill during a commit can leave
// it half done. Kafka guarantees exactly-once across crashes; this broker does not.
package embedded
