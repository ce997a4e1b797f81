package quota

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Window is the capacity of a bucket: the time in which its rate fills it.
const Window = 10 * time.Second

// unlimited is the rate of a bucket without a limit. rate.Inf would not work, because its token count after a duration
// of 0 is NaN.
const unlimited = rate.Limit(1 << 50)

// Tenant counts one tenant's use of this process against its limits.
type Tenant struct {
	quotas  *Quotas
	limits  atomic.Pointer[Limits]
	buckets [Bytes + 1]*rate.Limiter
	slots   [kinds]atomic.Int64 // slots in use
	used    atomic.Int64        // time of the last use, in Unix seconds
	uses    atomic.Int64        // requests that were admitted and have not ended
}

func newTenant(q *Quotas, l Limits) *Tenant {
	t := &Tenant{quotas: q}
	for k := range t.buckets {
		t.buckets[k] = rate.NewLimiter(unlimited, math.MaxInt32)
	}
	t.used.Store(time.Now().Unix())
	t.set(l)
	return t
}

// set applies limits. Tokens already taken from a bucket stay taken.
func (t *Tenant) set(l Limits) {
	if old := t.limits.Swap(&l); old != nil && *old == l {
		return
	}
	now := time.Now()
	for k, b := range t.buckets {
		limit := l.of(Kind(k))
		if limit == 0 {
			b.SetLimitAt(now, unlimited)
			b.SetBurstAt(now, math.MaxInt32)
			continue
		}
		share := float64(limit) / float64(t.quotas.cfg.Replicas)
		b.SetLimitAt(now, rate.Limit(share))
		b.SetBurstAt(now, max(1, int(min(share*Window.Seconds(), math.MaxInt32))))
	}
}

// Limits returns the current limits. Rates and counts apply to all replicas together.
func (t *Tenant) Limits() Limits { return *t.limits.Load() }

func (t *Tenant) idle(now time.Time) bool {
	return t.uses.Load() == 0 && now.Unix()-t.used.Load() > int64(forgetAfter/time.Second)
}

// Admit takes one unit of each kind, in order, and writes the RateLimit headers if header is not nil. Call done when
// the request ends, to release the slots and let the tenant become idle. The error is an *ExceededError. After an
// error, all slots are released, but rate tokens stay taken.
func (t *Tenant) Admit(header http.Header, of ...Kind) (done func(), err error) {
	t.used.Store(time.Now().Unix())
	t.uses.Add(1)
	var taken []Kind
	done = func() {
		t.used.Store(time.Now().Unix())
		t.uses.Add(-1)
		for _, k := range taken {
			t.slots[k].Add(-1)
		}
	}
	for _, k := range of {
		switch {
		case k.isRate():
			err = t.take(k)
		case t.slot(k):
			taken = append(taken, k)
		default:
			err = t.exceeded(k, time.Second)
		}
		if err != nil {
			break
		}
	}
	if header != nil {
		t.describe(header, of)
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// take takes one token of a rate or returns an *ExceededError.
func (t *Tenant) take(k Kind) error {
	if !t.Limited(k) {
		return nil
	}
	r := t.buckets[k].Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		return t.exceeded(k, wait)
	}
	return nil
}

// slot acquires a slot and reports whether one was free.
func (t *Tenant) slot(k Kind) bool {
	most := t.slotsOf(k)
	if n := t.slots[k].Add(1); most > 0 && n > most {
		t.slots[k].Add(-1)
		return false
	}
	return true
}

// slotsOf returns this process's number of slots, at least one; 0 if there is no limit.
func (t *Tenant) slotsOf(k Kind) int64 {
	n := int64(t.quotas.cfg.Replicas)
	return (t.limits.Load().of(k) + n - 1) / n
}

// Limited reports whether a rate has a limit. Callers use it to skip counting.
func (t *Tenant) Limited(k Kind) bool { return t.limits.Load().of(k) > 0 }

// Wait takes n tokens of a rate and waits until the bucket has them, which slows a sender down to its rate. If this
// would take longer than patience, Wait takes nothing and returns an *ExceededError. If n exceeds the bucket's
// capacity, Wait returns once the bucket is full; later calls wait for the rest.
func (t *Tenant) Wait(ctx context.Context, k Kind, n int64, patience time.Duration) error {
	if n <= 0 || !t.Limited(k) {
		return nil
	}
	t.used.Store(time.Now().Unix())
	b := t.buckets[k]
	now := time.Now()
	most := int64(b.Burst())
	r := b.ReserveN(now, int(min(n, most)))
	wait := r.DelayFrom(now)
	if wait > patience {
		r.CancelAt(now)
		return t.exceeded(k, wait)
	}
	for n -= most; n > 0; n -= most {
		b.ReserveN(now, int(min(n, most)))
	}
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", k, context.Cause(ctx))
	}
}

// describe writes the headers RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers. In them, q is the
// limit for all replicas together, and r is what this process still grants, multiplied by the number of replicas.
func (t *Tenant) describe(h http.Header, of []Kind) {
	l := t.limits.Load()
	var policy, left strings.Builder
	for _, k := range of {
		limit := l.of(k)
		if limit == 0 {
			continue
		}
		if policy.Len() > 0 {
			policy.WriteString(", ")
			left.WriteString(", ")
		}
		name := strconv.Quote(k.String())
		if !k.isRate() {
			r := max(0, t.slotsOf(k)-t.slots[k].Load()) * int64(t.quotas.cfg.Replicas)
			fmt.Fprintf(&policy, `%s;q=%d;qu="concurrent-requests"`, name, limit)
			fmt.Fprintf(&left, `%s;r=%d`, name, min(limit, r))
			continue
		}
		b := t.buckets[k]
		tokens := b.Tokens()
		r := int64(max(0, tokens)) * int64(t.quotas.cfg.Replicas)
		full := math.Ceil((float64(b.Burst()) - tokens) / float64(b.Limit()))
		fmt.Fprintf(&policy, `%s;q=%d;w=%d`, name, limit*int64(Window/time.Second), int64(Window/time.Second))
		fmt.Fprintf(&left, `%s;r=%d;t=%d`, name, r, int64(max(0, full)))
	}
	if policy.Len() > 0 {
		h.Set("RateLimit-Policy", policy.String())
		h.Set("RateLimit", left.String())
	}
}

// ExceededError means that the tenant has reached a limit.
type ExceededError struct {
	Kind Kind
	// Limit is the tenant's limit for all replicas together.
	Limit int64
	// RetryAfter is how long to wait before a retry.
	RetryAfter time.Duration
}

func (t *Tenant) exceeded(k Kind, wait time.Duration) *ExceededError {
	t.quotas.metrics.refused.WithLabelValues(k.String()).Inc()
	return &ExceededError{Kind: k, Limit: t.limits.Load().of(k), RetryAfter: wait}
}

func (e *ExceededError) Error() string {
	return fmt.Sprintf("the tenant's quota is used up: %s is %d; try again in %d s, or ask the operator for more", e.Kind, e.Limit, e.seconds())
}

func (e *ExceededError) seconds() int64 { return max(1, int64(math.Ceil(e.RetryAfter.Seconds()))) }

// ProblemType is the problem type that draft-ietf-httpapi-ratelimit-headers registers for exceeded quotas. Its member
// is violated-policies.
const ProblemType = "https://iana.org/assignments/http-problem-types#quota-exceeded"
