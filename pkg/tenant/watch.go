package tenant

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// CheckInterval is how often the credentials of an open request are checked again. A changed key file is read within 2 s, so the
// requests of a revoked key end within 5 s.
const CheckInterval = 2500 * time.Millisecond

// ErrRevoked means that credentials were valid when their request began and no longer are.
var ErrRevoked = revoked{}

type revoked struct{}

func (revoked) Error() string { return "the credentials have expired or were revoked" }
func (revoked) Unwrap() error { return ErrUnauthenticated }

// rechecker is an Authenticator that can check credentials again without counting a request.
type rechecker interface {
	Authenticator
	recheck(*http.Request) (Identity, error)
}

// Watch rechecks the credentials of an open request until stop is called. The returned context ends with ErrRevoked as its cause when the
// credentials expire, or within CheckInterval after the authenticator refuses them, or accepts them only for another tenant or without
// the scope. While the authenticator cannot decide, only expiry counts. The checks continue after the request's own context has ended,
// because work may outlast its caller (Revoked, OnRevoked). Call stop once the request is answered.
func Watch(r *http.Request, auth Authenticator, id Identity, scope Scope) (_ context.Context, stop func()) {
	if _, ok := auth.(fixed); ok {
		return context.WithCancel(r.Context())
	}
	w := &watch{auth: auth, tenant: id.Tenant, scope: scope, expires: id.Expires}
	var ctx context.Context
	ctx, w.cancel = context.WithCancelCause(context.WithValue(r.Context(), watchKey{}, w))
	w.revoked, w.revoke = context.WithCancelCause(context.Background())
	// A copy without the body, which the handler reads.
	w.again = (&http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: r.Header.Clone(), RemoteAddr: r.RemoteAddr, TLS: r.TLS}).
		WithContext(context.WithoutCancel(r.Context()))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.next(), w.check)
	return ctx, w.stop
}

// Revoked reports whether Watch has found the credentials of the context's request revoked or expired.
func Revoked(ctx context.Context) bool {
	if errors.Is(context.Cause(ctx), ErrRevoked) {
		return true
	}
	w, ok := ctx.Value(watchKey{}).(*watch)
	return ok && w.revoked.Err() != nil
}

// OnRevoked calls f in its own goroutine when the credentials of the context's request end, even if the context has already ended.
// Call stop before the request is answered. It waits for a running f, which must not affect the connection's next request.
func OnRevoked(ctx context.Context, f func()) (stop func()) {
	w, ok := ctx.Value(watchKey{}).(*watch)
	if !ok {
		return func() {}
	}
	done := make(chan struct{})
	unhook := context.AfterFunc(w.revoked, func() {
		defer close(done)
		f()
	})
	return sync.OnceFunc(func() {
		if !unhook() {
			<-done
		}
	})
}

type watchKey struct{}

// watch watches the credentials of one request.
type watch struct {
	auth   Authenticator
	again  *http.Request
	tenant string
	scope  Scope
	cancel context.CancelCauseFunc // of the context that Watch returns
	// revoked is cancelled when the credentials end. The end of the request does not cancel it.
	revoked context.Context
	revoke  context.CancelCauseFunc

	mu      sync.Mutex
	expires time.Time
	timer   *time.Timer
	stopped bool
}

func (w *watch) stop() {
	w.cancel(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// next returns the time until the next check.
func (w *watch) next() time.Duration {
	if w.expires.IsZero() {
		return CheckInterval
	}
	return max(min(time.Until(w.expires), CheckInterval), 0)
}

func (w *watch) check() {
	var id Identity
	var err error
	if a, ok := w.auth.(rechecker); ok {
		id, err = a.recheck(w.again)
	} else {
		id, err = w.auth.Authenticate(w.again)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	expired := err != nil && !w.expires.IsZero() && !time.Now().Before(w.expires) // also if the authenticator cannot answer
	if expired || errors.Is(err, ErrUnauthenticated) || err == nil && (id.Tenant != w.tenant || !id.Allows(w.scope)) {
		w.cancel(ErrRevoked)
		w.revoke(ErrRevoked)
		return
	}
	if err == nil {
		w.expires = id.Expires
	}
	w.timer.Reset(w.next())
}
