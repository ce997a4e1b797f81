// Package lint says what the official AG-UI client (@ag-ui/client 1.0.0) would refuse of a stream of events, and what it
// would bend: strip, drop, or take for something else. It reads events as the client does: framing, the boundary
// for older forms, the schema, chunks, verification, and the fold; test/conformance holds it to the running client.
//
// The package is pure but for the reader that it is given. Rules lists what it finds; docs/lint.md explains each.
package lint
