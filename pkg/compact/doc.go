// Package compact folds the events of a run into messages and state, equal to what the official AG-UI client 1.0.0 holds
// after the same events. It is pure: no Kafka, clock, logger or goroutine. The same events give the same bytes, however they
// are batched.
package compact
