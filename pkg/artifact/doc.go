// Package artifact writes and reads ag-ui.compacted-message-snapshot.export.v1: the plain-text messages
// of one bounded run, with opaque ids that resolve nowhere, for a consumer outside.
//
// It is strict in both directions. What it writes it has read back; what it reads is accepted whole or
// refused with the name of the rule that it breaks. The JSON Schema of the contract is in schemas/.
//
// An artifact says what was observed in one envelope of RUN_STARTED, MESSAGES_SNAPSHOT and a terminal
// event, or at the end of one folded run. It does not claim that the stream was complete, it says nothing
// of state, of branches, or of the order in which events came, and it proves nothing by itself.
// RUN_FINISHED does not say that there was an answer, or that the run waits for nobody. Where a run had
// no input, its history may go on from a parent that was guessed: only the Report says so.
package artifact
