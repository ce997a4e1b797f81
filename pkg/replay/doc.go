// Package replay publishes events of skein.events again, to a topic outside of any topic set, such as that of a test
// system, at their recorded pace or another one. It reads Kafka directly, outside of any group, and leaves out what was
// erased.
package replay
