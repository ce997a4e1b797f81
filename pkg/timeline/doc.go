// Package timeline steps through a run event by event and computes what each event changed in the messages and the state,
// for debuggers.
//
// A Reader makes a Timeline from the raw records of a run, a Cursor moves along it, and Compare returns what a step changed.
//
// It is pure: records and the histories that runs start from come in as values.
package timeline
