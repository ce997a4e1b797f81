// Package lint finds events that the official AG-UI client (@ag-ui/client 1.0.0) refuses, strips, drops or misreads. It reads
// events as the client does: framing, conversion of older forms, schema, chunks, verification and fold. test/conformance compares
// its findings with the running client.
//
// The package is pure except for reading its input. Rules lists what it finds; docs/lint.md explains each rule.
package lint
