// Package timeline goes through a run event by event and says what each event changed in the conversation and the
// state, so that a debugger can stop at any of them.
//
// A Reader makes a Timeline out of the raw records of a run, a Cursor walks it, and Compare says what a step changed.
//
// It is pure: records and the histories that runs start from come in as values.
package timeline
