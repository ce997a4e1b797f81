package schemas

import _ "embed"

// OpenAPI describes the HTTP API (OpenAPI 3.1). It is served at /openapi.json; tests hold the
// stages' routes and fields to it.
//
//go:embed openapi.json
var OpenAPI []byte
