// Package conformance holds Skein to the official AG-UI client 1.0.0: what Skein calls the history
// of a run must be what that client makes of the same input and events, message for message and
// value for value.
//
// Client runs the published npm packages in a Node process (reduce.mjs) and answers thousands of
// streams with one process. Where Node is not at hand, Expected has the results for the recordings
// and the files in testdata/cases theirs; a test compares them with the client wherever it is, so
// that they cannot rot. With CI=true a missing client is a failure.
//
// The package is for tests. README.md tells how to hold another implementation to the client.
package conformance
