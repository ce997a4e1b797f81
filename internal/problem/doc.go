// Package problem writes errors to HTTP callers as problem documents (RFC 9457).
package problem
