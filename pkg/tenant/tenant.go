package tenant

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// ErrUnauthenticated means that a request has no valid credentials. Its status is 401.
var ErrUnauthenticated = errors.New("unauthenticated")

// ErrExpired means that known credentials have expired. It wraps ErrUnauthenticated.
var ErrExpired = fmt.Errorf("%w: the credentials have expired", ErrUnauthenticated)

// Header is the request header with Skein's credentials if Authorization has those of an agent, which the proxy forwards. If Header
// is set, Skein ignores Authorization.
const Header = "Skein-Authorization"

// Challenge is the WWW-Authenticate header of a 401 (RFC 6750).
const Challenge = `Bearer realm="skein"`

// Scope is a permission of credentials.
type Scope string

// The scopes.
const (
	// ScopePublish allows publishing events and inputs.
	ScopePublish Scope = "publish"
	// ScopeRead allows all requests to the query stage.
	ScopeRead Scope = "read"
	// ScopeErase allows erasing threads.
	ScopeErase Scope = "erase"
)

// Scopes returns all scopes.
func Scopes() []Scope { return []Scope{ScopePublish, ScopeRead, ScopeErase} }

// Identity is an authenticated caller.
type Identity struct {
	// Tenant is the caller's tenant, valid by record.ValidateID.
	Tenant string
	// Name identifies the caller for people: the key's name, or the token's subject. It may be empty.
	Name   string
	Scopes []Scope
	// Expires is when the credentials stop being valid; zero is never.
	Expires time.Time
}

// Allows reports whether the caller has the scope.
func (i Identity) Allows(s Scope) bool { return slices.Contains(i.Scopes, s) }

// Authenticator authenticates requests. An error other than ErrUnauthenticated means that it cannot decide now and that the caller may
// retry.
type Authenticator interface {
	Authenticate(*http.Request) (Identity, error)
}

// Fixed returns an authenticator that accepts every request for one tenant with all scopes, for a server on loopback.
func Fixed(tenant string) Authenticator { return fixed(tenant) }

type fixed string

func (f fixed) Authenticate(*http.Request) (Identity, error) {
	return Identity{Tenant: string(f), Scopes: Scopes()}, nil
}
