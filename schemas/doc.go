// Package schemas embeds the published formats into the binary: the numbered SQL migrations of the stores, the
// OpenAPI and AsyncAPI descriptions, the JSON Schemas and the test vectors of keys.
package schemas
