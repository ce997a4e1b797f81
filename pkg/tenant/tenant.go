package tenant

import (
	"errors"
	"net/http"
)

// ErrUnauthenticated says that a request carries no credentials, or none that are known: 401.
var ErrUnauthenticated = errors.New("unauthenticated")

// Scope is a thing that credentials may allow.
type Scope string

// The scopes.
const (
	// ScopeWrite allows to publish events and inputs and to erase threads.
	ScopeWrite Scope = "write"
	// ScopeRead allows everything that the query stage answers.
	ScopeRead Scope = "read"
)

// Identity is what is known of a caller.
type Identity struct {
	// Tenant is the caller's tenant, an id by record.ValidateID.
	Tenant string
	// Scopes are what the caller may do.
	Scopes []Scope
}

// Allows reports whether the caller has the scope.
func (i Identity) Allows(s Scope) bool {
	for _, have := range i.Scopes {
		if have == s {
			return true
		}
	}
	return false
}

// Authenticator finds out who a request comes from. An error that is not ErrUnauthenticated means
// that it could not be found out, and the caller may try again.
type Authenticator interface {
	Authenticate(*http.Request) (Identity, error)
}

// Fixed takes every request for one of the given tenant with all scopes. It is for a development
// server on loopback, where there is nobody to tell apart.
func Fixed(tenant string) Authenticator { return fixed(tenant) }

type fixed string

func (f fixed) Authenticate(*http.Request) (Identity, error) {
	return Identity{Tenant: string(f), Scopes: []Scope{ScopeWrite, ScopeRead}}, nil
}
