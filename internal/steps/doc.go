// Package steps goes through a run event by event as the HTTP API tells of it (GET …/runs/{run}/state): pages of steps, messages and state behind each,
// and the first step at which a condition is true.
package steps
