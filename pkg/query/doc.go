// Package query is the stage that serves the HTTP API. It only reads: the lineage store; skein.runs, for open runs and
// verification; and raw events, for replay, verification and live streams. The only state that outlives a request is
// caches of recent reads. Every call is bound to the caller's tenant: data of another tenant is not found.
//
// schemas/openapi.json describes the API and is served at /openapi.json; a test compares routes and fields with it.
package query
