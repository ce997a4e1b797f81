// Package ingest is the stage to which agents publish over HTTP. It reads the events and inputs of runs, checks their
// envelope and writes them unchanged to skein.events. It is the only stage that can refuse a caller's data. It reports
// success only after Kafka has acknowledged the records.
//
// A request flows through three parts. An eventstream.Reader reads the events of a body, one at a time. Service checks
// each event. A publisher writes them in order to the thread's partition while the body is still being read. It blocks
// while too many bytes are unacknowledged, and it knows which events are acknowledged. If bad data or a failure ends a
// request early, the response names the acknowledged part, so that the caller can continue after it.
//
// The proxy (postAgent) forwards requests to agents. A wire sends the agent's response to the caller, and a spool
// publishes the response to Kafka. Neither waits for the other.
//
// A request to stop a run (postCancel) is a record, too. The process that serves the run reads it (heed). The process
// that received the request waits for the run's end. Both read the run's thread (package tail).
//
// Besides proxied runs whose records are not all acknowledged, the only state that outlives a request is the partition
// count of the topics. This count is pinned: if it differs or changes, the stage is not ready.
package ingest
