// Package tenant authenticates callers. The tenant is the isolation boundary: it comes from the caller's credentials only, never
// from a payload or a path.
//
// The HTTP stages use an Authenticator: KeyFile accepts API keys whose hashes are in a file, Tokens accepts the JSON Web Tokens of
// an issuer, and Fixed accepts every request, for a server that only this machine can reach. Watch rechecks the credentials of open
// requests.
package tenant
