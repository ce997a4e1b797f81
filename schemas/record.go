package schemas

import _ "embed"

// KeyVectors are the test vectors of the key escape rule and the partitioner, for every language
// that writes to the topics.
//
//go:embed key-vectors.json
var KeyVectors []byte

// RunRecordV1 is the JSON Schema of the run record: the values of skein.runs with skein-version 1
// and skein-kind run.
//
//go:embed run-record.v1.schema.json
var RunRecordV1 []byte

// ExportV1 is the frozen JSON Schema of the export artifact ag-ui.compacted-message-snapshot.export.v1. It cannot
// express one further rule: message ids do not repeat.
//
//go:embed compacted-message-snapshot.export.v1.schema.json
var ExportV1 []byte
