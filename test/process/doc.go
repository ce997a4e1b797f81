// Package process runs Skein's commands as processes of their own, for tests that hold the built
// binaries to something: it builds and starts them, reads what they log, waits until they are ready,
// and ends them with any signal. None outlives its test.
package process
