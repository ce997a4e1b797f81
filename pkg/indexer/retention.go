package indexer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/store"
)

// Retention is how long the threads of tenants stay in the store behind the end of their last run.
type Retention map[string]time.Duration

// ParseRetention reads rules of the form TENANT=DAYS. A tenant's id may hold an equals sign.
func ParseRetention(rules []string) (Retention, error) {
	r := Retention{}
	for _, rule := range rules {
		at := strings.LastIndexByte(rule, '=')
		if at < 1 {
			return nil, fmt.Errorf("reading retention %q: want TENANT=DAYS, such as acme=90", rule)
		}
		days, err := strconv.Atoi(rule[at+1:])
		if err != nil || days < 1 || days > 36_500 {
			return nil, fmt.Errorf("reading retention %q: want from 1 to 36500 whole days behind the equals sign", rule)
		}
		if _, twice := r[rule[:at]]; twice {
			return nil, fmt.Errorf("reading retention: tenant %s has two", rule[:at])
		}
		r[rule[:at]] = time.Duration(days) * 24 * time.Hour
	}
	return r, nil
}

// How often to look for expired threads, and how soon again where there were some.
const (
	expireEvery = time.Hour
	expireAgain = time.Minute
)

// Retain deletes expired threads until ctx ends. Several processes may do this for one store. Failures are logged and tried again.
func (s *Service) Retain(ctx context.Context, store store.Expirer, r Retention) error {
	for {
		next := expireEvery
		for _, tenant := range slices.Sorted(maps.Keys(r)) {
			n, err := store.Expire(ctx, tenant, time.Now().Add(-r[tenant]))
			s.metrics.expired.Add(float64(n))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				s.cfg.Logger.WarnContext(ctx, "expired threads stay for now", "tenant", tenant, "error", err)
			}
			if n > 0 {
				next = expireAgain
				s.cfg.Logger.InfoContext(ctx, "expired threads deleted", "tenant", tenant, "threads", n)
			}
		}
		t := time.NewTimer(next)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
