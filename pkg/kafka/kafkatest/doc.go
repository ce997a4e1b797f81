// Package kafkatest provides Kafka clusters for tests. Start runs kfake over TCP on a free loopback port, with the
// topics of Skein. Real returns a real Kafka of one or three nodes, which can be killed, paused and started again, for
// claims that only a real Kafka can prove. A Wire is one process's connection to kfake: it can cut off any request,
// lose its response, or make it the process's last.
package kafkatest
