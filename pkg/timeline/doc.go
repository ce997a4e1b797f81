// Package timeline steps through a run event by event and computes how each event changed the messages and the state.
// It serves debuggers.
//
// A Reader makes a Timeline from the raw records of a run, a Cursor moves along the Timeline, and Compare returns the
// change of a step.
//
// The package is pure: records and the histories from which runs start come in as values.
package timeline
