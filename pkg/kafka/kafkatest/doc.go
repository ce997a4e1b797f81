// Package kafkatest gives tests a Kafka cluster. Start gives kfake over TCP on a free loopback port, with
// the topics of Skein on it. Real gives a real Kafka, one or three nodes, that can be killed, paused and
// brought up again: for every claim that only a real one can show. A Wire is one process's way to kfake,
// where each of its requests can be cut off, lose its answer or be the process's last.
package kafkatest
