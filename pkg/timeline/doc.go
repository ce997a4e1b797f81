// Package timeline steps through a run event by event and computes how each event changed the messages and the state.
// It serves debuggers.
//
// A Reader makes a Timeline from the raw records of a run, a Cursor moves along it, and Compare returns the change of a
// step.
//
// It is pure: records and the histories that runs start from come in as values.
package timeline
