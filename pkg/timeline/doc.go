// Package timeline goes through a run event by event and says what each event changed in the conversation and the
// state, so that a debugger can stop at any of them.
//
// It is pure: events and the fold come in as values.
package timeline
