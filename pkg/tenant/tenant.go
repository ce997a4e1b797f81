package tenant

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// ErrUnauthenticated says that a request carries no credentials, or none that are known: 401.
var ErrUnauthenticated = errors.New("unauthenticated")

// ErrExpired says that credentials are known and their time is over. It is an ErrUnauthenticated.
var ErrExpired = fmt.Errorf("%w: the credentials have expired", ErrUnauthenticated)

// Header carries credentials in the place of Authorization, which is then somebody else's, such as an agent's behind
// the proxy. Where it is there, Authorization is not looked at.
const Header = "Skein-Authorization"

// Challenge is the WWW-Authenticate header of a 401 (RFC 6750).
const Challenge = `Bearer realm="skein"`

// Scope is a thing that credentials may allow.
type Scope string

// The scopes.
const (
	// ScopePublish allows to publish events and inputs.
	ScopePublish Scope = "publish"
	// ScopeRead allows everything that the query stage answers.
	ScopeRead Scope = "read"
	// ScopeErase allows to erase threads.
	ScopeErase Scope = "erase"
)

// Scopes returns all of them.
func Scopes() []Scope { return []Scope{ScopePublish, ScopeRead, ScopeErase} }

// Identity is what is known of a caller.
type Identity struct {
	// Tenant is the caller's tenant, an id by record.ValidateID.
	Tenant string
	// Name tells a tenant's callers apart, for people: the key's name, or the token's subject. It may be empty.
	Name string
	// Scopes are what the caller may do.
	Scopes []Scope
	// Expires is when the credentials stop being valid; zero is never.
	Expires time.Time
}

// Allows reports whether the caller has the scope.
func (i Identity) Allows(s Scope) bool { return slices.Contains(i.Scopes, s) }

// Authenticator finds out who a request comes from. An error that is not ErrUnauthenticated means
// that it could not be found out, and the caller may try again.
type Authenticator interface {
	Authenticate(*http.Request) (Identity, error)
}

// Fixed takes every request for one of the given tenant with all scopes. It is for a server on
// loopback, where there is nobody to tell apart.
func Fixed(tenant string) Authenticator { return fixed(tenant) }

type fixed string

func (f fixed) Authenticate(*http.Request) (Identity, error) {
	return Identity{Tenant: string(f), Scopes: Scopes()}, nil
}
