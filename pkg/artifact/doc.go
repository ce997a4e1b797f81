// Package artifact writes and reads ag-ui.compacted-message-snapshot.export.v1: the plain-text messages of one ended run,
// with opaque ids that are not URLs, for other systems.
//
// The package is strict in both directions: it reads back what it writes, and it either accepts a whole artifact or refuses it
// and names the rule that the artifact breaks. The JSON Schema of the contract is in schemas/.
//
// An artifact contains what was observed in one envelope of RUN_STARTED, MESSAGES_SNAPSHOT and a terminal event, or at the end of
// one folded run. It does not claim that the stream was complete, contains no state, branches or order of events, and proves
// nothing by itself. RUN_FINISHED means neither that there was an answer nor that the run waits for nobody. If a run had no
// input, its history may continue that of an inferred parent: only the Report shows this.
package artifact
