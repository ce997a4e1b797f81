// Package demo plays conversations through Skein's HTTP API, so that a newcomer sees what Skein makes of them: tool calls, subagents,
// interrupts, a failure, and branches. They were written for the demo, as AG-UI events with the times of an agent; no model has said
// them. The runs of the thread with branches name no parent: that Skein finds it is what the demo shows.
package demo
