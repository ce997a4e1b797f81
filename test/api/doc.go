// Package api holds both HTTP stages to the API's description, schemas/openapi.json: schemathesis reads it, makes requests
// of it, right and wrong ones, and compares the answers with what it says of them.
package api
