// Package schemas holds what is written down for others and embedded into the binary: the SQL of
// the stores by number, the OpenAPI and AsyncAPI descriptions, the JSON Schemas and the test vectors of keys.
package schemas
