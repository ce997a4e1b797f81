// Package replay publishes events of skein.events again, at their recorded pace or another one. The target topic belongs
// to no topic set; it may be that of a test system. The package reads Kafka directly, without a consumer group, and
// leaves out what was erased.
package replay
