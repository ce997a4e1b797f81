// Package sse takes a stream of server-sent events apart without changing it: what it hands out, piece by
// piece, is every byte that came, with the data of each event beside it. It is made for a proxy, which
// sends the bytes on and keeps the events.
package sse
