package tenant_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/pkg/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers is an Authenticator that gives the same answer until it is told another one.
type answers struct {
	now atomic.Pointer[func() (tenant.Identity, error)]
}

func (a *answers) give(id tenant.Identity, err error) {
	f := func() (tenant.Identity, error) { return id, err }
	a.now.Store(&f)
}

func (a *answers) Authenticate(*http.Request) (tenant.Identity, error) { return (*a.now.Load())() }

func TestWatch_EndsWithCredentialsThatAreTakenBack(t *testing.T) {
	id := tenant.Identity{Tenant: "acme", Scopes: []tenant.Scope{tenant.ScopeRead}}
	for name, c := range map[string]struct {
		id      tenant.Identity
		err     error
		revoked bool
	}{
		"as before":           {id, nil, false},
		"unknown":             {tenant.Identity{}, tenant.ErrUnauthenticated, true},
		"expired":             {tenant.Identity{}, tenant.ErrExpired, true},
		"another's":           {tenant.Identity{Tenant: "umbrella", Scopes: id.Scopes}, nil, true},
		"without the scope":   {tenant.Identity{Tenant: "acme", Scopes: []tenant.Scope{tenant.ScopePublish}}, nil, true},
		"cannot be found out": {tenant.Identity{}, errors.New("the key server is away"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				auth := &answers{}
				auth.give(id, nil)
				ctx, stop := tenant.Watch(new(http.Request).WithContext(t.Context()), auth, id, tenant.ScopeRead)
				defer stop()
				time.Sleep(time.Minute)
				if ctx.Err() != nil {
					t.Fatalf("it ended with valid credentials: %v", context.Cause(ctx))
				}
				auth.give(c.id, c.err)
				time.Sleep(tenant.CheckInterval)
				synctest.Wait()
				if tenant.Revoked(ctx) != c.revoked || (ctx.Err() != nil) != c.revoked {
					t.Errorf("it is %v", context.Cause(ctx))
				}
				stop()
				if tenant.Revoked(ctx) != c.revoked {
					t.Error("stop changes why it ended")
				}
			})
		})
	}
}

// That credentials are valid may not be found out for a while, but not beyond their expiry.
func TestWatch_EndsAtTheExpiryWhateverTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auth := &answers{}
		id := tenant.Identity{Tenant: "acme", Scopes: []tenant.Scope{tenant.ScopeRead}, Expires: time.Now().Add(time.Minute)}
		auth.give(id, errors.New("the key server is away"))
		ctx, stop := tenant.Watch(new(http.Request).WithContext(t.Context()), auth, id, tenant.ScopeRead)
		defer stop()
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatalf("it ends before: %v", context.Cause(ctx))
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !tenant.Revoked(ctx) {
			t.Error("it goes on")
		}
	})
}

// The bound that the documents give: a key that is taken out of the file ends what it began within 5 s.
func TestWatch_EndsWithin5sOfAKeyThatIsTakenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := tenant.NewKey()
		k := watched(t, "keys:\n"+entry("one", "acme", key))
		r := presents(key).WithContext(t.Context())
		id, err := k.Authenticate(r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Millisecond)
		ctx, stop := tenant.Watch(r, k, id, tenant.ScopeRead)
		defer stop()
		time.Sleep(4 * time.Second)
		k.write("keys: []\n")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !tenant.Revoked(ctx) {
			t.Error("it goes on")
		}
		if n := metric(t, k.reg, "skein_auth_requests_total"); n != 1 {
			t.Errorf("%v requests are counted, with one request and several checks", n)
		}
	})
}

// A run at an agent goes on after its caller has left, and still ends with its credentials.
func TestWatch_ChecksUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := tenant.Identity{Tenant: "acme", Scopes: []tenant.Scope{tenant.ScopeRead}}
		auth := &answers{}
		auth.give(id, nil)
		parent, leave := context.WithCancel(t.Context())
		ctx, stop := tenant.Watch(new(http.Request).WithContext(parent), auth, id, tenant.ScopeRead)
		calls := 0
		unhook := tenant.OnRevoked(ctx, func() { calls++ })
		leave()
		time.Sleep(time.Minute)
		if calls != 0 || tenant.Revoked(ctx) {
			t.Fatal("the caller's leaving counts as a revocation")
		}
		auth.give(tenant.Identity{}, tenant.ErrUnauthenticated)
		time.Sleep(tenant.CheckInterval)
		synctest.Wait()
		if calls != 1 || !tenant.Revoked(ctx) {
			t.Errorf("%d calls, revoked: %v", calls, tenant.Revoked(ctx))
		}
		unhook()
		stop()
	})
}
