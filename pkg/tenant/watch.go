package tenant

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// CheckInterval is how often the credentials of an open request are checked again. It leaves the 2 s in which a changed
// key file is read, so that a revoked key ends within 5 s.
const CheckInterval = 2500 * time.Millisecond

// ErrRevoked says that credentials were valid when their request began, and are not any more.
var ErrRevoked = revoked{}

type revoked struct{}

func (revoked) Error() string { return "the credentials have expired or were revoked" }
func (revoked) Unwrap() error { return ErrUnauthenticated }

// rechecker is an Authenticator that can check credentials again without counting a request.
type rechecker interface {
	recheck(*http.Request) (Identity, error)
}

// Watch returns a context that ends with ErrRevoked as its cause when the request's credentials expire, and within
// CheckInterval after the authenticator refuses them, or takes them for another tenant or without the scope. An authenticator
// that cannot tell changes nothing. The caller calls stop once the request is answered.
func Watch(r *http.Request, auth Authenticator, id Identity, scope Scope) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	if _, ok := auth.(fixed); ok {
		return ctx, func() { cancel(nil) }
	}
	w := &watch{
		auth: auth, tenant: id.Tenant, scope: scope, cancel: cancel, expires: id.Expires,
		// All that an authenticator may look at, and no body: that belongs to the handler.
		again: (&http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: r.Header.Clone(), RemoteAddr: r.RemoteAddr, TLS: r.TLS}).WithContext(ctx),
	}
	ready := make(chan struct{})
	w.timer = time.AfterFunc(w.next(), func() {
		<-ready
		w.check()
	})
	close(ready)
	return ctx, func() {
		cancel(nil)
		w.timer.Stop()
	}
}

// Revoked reports whether a context has ended because the credentials of its request are not valid any more.
func Revoked(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrRevoked) }

type watch struct {
	auth    Authenticator
	again   *http.Request
	tenant  string
	scope   Scope
	expires time.Time
	cancel  context.CancelCauseFunc
	timer   *time.Timer
}

// next returns when to check.
func (w *watch) next() time.Duration {
	if w.expires.IsZero() {
		return CheckInterval
	}
	return max(min(time.Until(w.expires), CheckInterval), 0)
}

func (w *watch) check() {
	if w.again.Context().Err() != nil {
		return
	}
	var id Identity
	var err error
	if a, ok := w.auth.(rechecker); ok {
		id, err = a.recheck(w.again)
	} else {
		id, err = w.auth.Authenticate(w.again)
	}
	if errors.Is(err, ErrUnauthenticated) || err == nil && (id.Tenant != w.tenant || !id.Allows(w.scope)) {
		w.cancel(ErrRevoked)
		return
	}
	if err == nil {
		w.expires = id.Expires
	}
	w.timer.Reset(w.next())
}
