// Package query is the stage that answers: the HTTP API over the lineage store and, for open runs,
// skein.runs. It only reads, holds no state that outlives a request but what it has read last, and every call is bound to the
// caller's tenant: what belongs to another one is not found.
//
// The API is described by schemas/openapi.json, served at /openapi.json; a test holds routes and
// fields to it.
package query
