// Package embedded is the Kafka broker of "skein dev": franz-go's kfake on one folder, over TCP, so
// that other Kafka clients can join in. It is durable, and it is for one machine: kfake ends a
// transaction partition by partition, so that a kill inside a commit can tear it. Exactly-once over
// crashes is a promise of Kafka, not of this broker.
package embedded
