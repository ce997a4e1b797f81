// Package audit writes who read, published, erased and exported what over an HTTP API: JSON Lines, a line for each request, without
// payloads. Handler stands before a stage's handler, which says by From what only it knows: the route, the caller and the ids.
package audit
