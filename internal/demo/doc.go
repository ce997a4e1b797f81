// Package demo publishes example conversations through Skein's HTTP API, with tool calls, subagents, interrupts, a failure, and
// branches. They were written for the demo, without a model, as AG-UI events with realistic times. The runs of the thread with
// branches name no parent, to show that Skein finds it.
package demo
