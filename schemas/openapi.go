package schemas

import _ "embed"

// OpenAPI describes the HTTP API (OpenAPI 3.1). It is served at /openapi.json; tests compare the stages' routes and
// fields with it.
//
//go:embed openapi.json
var OpenAPI []byte
