// Package ingest is the stage that agents publish to over HTTP: it takes the events and inputs of runs, checks their envelope and
// writes them to skein.events, byte for byte. It is the only stage that can say no to a caller, and
// it says yes only after Kafka has acknowledged.
//
// A request flows through three parts. An eventstream.Reader reads the events of a body, one at a time.
// Service checks each one. A publisher writes them in order to the thread's partition while the body is still being read, waits while too
// much is unacknowledged, and knows how far the acknowledged part reaches. What ends a request early,
// bad data or bad weather, is answered with that part, so that the caller goes on from there.
//
// The proxy (postAgent) stands between callers and agents: what an agent answers goes on as it comes, by a wire, and
// to Kafka, by a spool, and neither waits for the other.
//
// A request to stop a run (postCancel) is a record as well: the process that holds the run reads it (heed), and the one
// that was called reads on until the run ends. Both follow the run's thread (package tail).
//
// The stage keeps no state that outlives a request but the partition count of the topics, and what
// a proxied run still has to publish. The count is
// pinned: where it differs or changes, the stage is not ready.
package ingest
