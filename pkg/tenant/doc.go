// Package tenant says who a caller is. The tenant is the isolation boundary: it comes from the
// caller's credentials and from nowhere else, least of all from a payload.
package tenant
