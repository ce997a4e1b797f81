// Package tenant says who a caller is. The tenant is the isolation boundary: it comes from the
// caller's credentials and from nowhere else, least of all from a payload or a path.
//
// An Authenticator is what the HTTP stages ask. There are three: KeyFile, hashed API keys in a file that is read again when
// it changes; Tokens, JSON Web Tokens of an issuer; and Fixed, for a server that only this machine can reach. Watch checks
// the credentials of open requests again.
package tenant
