// Package client talks to Skein's HTTP API: ingest and the query stage. It passes JSON on
// as it came and turns problem documents and dead connections into errors that say what to do.
package client
