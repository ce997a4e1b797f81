// Package compact is the fold: the events of a run in, messages and state out, equal to what the
// official AG-UI client 1.0.0 holds after the same events. It is pure: no Kafka, clock, logger or
// goroutine; the same events give the same bytes however they are split into batches.
package compact
