// Package steps reads a run event by event from the HTTP API (GET …/runs/{run}/state): pages of steps, with messages and state
// after each, and the first step at which a condition is true.
package steps
