// Package eventstream reads AG-UI events from bytes: NDJSON, numbered NDJSON, a JSON array, server-sent events, and
// files of any of these.
//
// A Reader returns one event after another, each as soon as its last byte was read, and buffers only one. The lower
// layer SSE returns server-sent events with their original bytes, for callers that forward them.
package eventstream
