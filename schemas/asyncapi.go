package schemas

import _ "embed"

// AsyncAPI describes the Kafka topics (AsyncAPI 3.0): their keys, headers and values. It refers to the JSON Schemas in the same
// folder by their file names.
//
//go:embed asyncapi.json
var AsyncAPI []byte

// EventV1 is the JSON Schema of the envelope of an AG-UI event, InputV1 of a RunAgentInput, and HeadersV1 of the headers of both
// on skein.events, whose skein-version is 1.
var (
	//go:embed event.v1.schema.json
	EventV1 []byte
	//go:embed input.v1.schema.json
	InputV1 []byte
	//go:embed headers.v1.schema.json
	HeadersV1 []byte
)
