// Package tenant authenticates callers. The tenant is the isolation boundary: it comes from the caller's credentials only, never
// from a payload or a path.
//
// The HTTP stages use an Authenticator: KeyFile, hashed API keys in a file that is reloaded when it changes; Tokens, JSON Web
// Tokens of an issuer; or Fixed, for a server that only this machine can reach. Watch checks the credentials of open requests
// again.
package tenant
