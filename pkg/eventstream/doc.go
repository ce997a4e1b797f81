// Package eventstream reads AG-UI events from bytes: NDJSON, numbered NDJSON, a JSON array, server-sent events, and
// files of any of these.
//
// A Reader returns each event as soon as it has read the event's last byte, and buffers only one event. The lower
// layer, SSE, returns server-sent events with their original bytes, for callers that forward them.
package eventstream
