// Package kafkatest provides Kafka clusters for tests. Start runs kfake over TCP on a free loopback port, with the
// topics of Skein. Real returns a real Kafka with one or three nodes, for claims that only a real Kafka can prove; a
// test can kill, pause and restart its nodes. A Wire is one process's connection to kfake. It can cut off any request,
// lose the response, or simulate that the process dies at a request.
package kafkatest
