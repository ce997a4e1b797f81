// Package replay publishes events of skein.events once more: to a topic outside of any topic set, such as that of a test system, at the
// pace at which they came or at another. It reads Kafka itself, outside of any group. What was erased stays erased.
package replay
