// Package trace makes Skein's spans and exports them to an OpenTelemetry collector, if the environment names one. It holds all of
// OpenTelemetry; stages give it names and times.
//
// There is a span for each HTTP request, for the records that a request produces, for each run that has ended, for each transaction with
// such runs, and for each block of the indexer: none for a single event, as OpenTelemetry's plugins for Kafka clients make one.
//
// The span of a run has an id that follows from the run's key, so that the stages, and later runs, link to it without knowing it.
package trace
