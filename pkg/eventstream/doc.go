// Package eventstream reads AG-UI events from bytes: NDJSON, numbered NDJSON, a JSON array, server-sent events, and files of any of these.
//
// A Reader returns one event after another, each as soon as its last byte was read, and holds no more than one. SSE below it returns
// server-sent events with the bytes that they came in, for those who forward them.
package eventstream
