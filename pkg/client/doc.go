// Package client calls Skein's HTTP API, of ingest and of the query stage. It returns JSON unchanged, and problem
// documents and broken connections as errors with a hint.
package client
