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

// Retention is how long threads stay in the store after their last run, by tenant.
type Retention map[string]time.Duration

// everyOther is the key of the rule for tenants without a rule of their own.
const everyOther = "*"

// ParseRetention parses rules of the form TENANT=DAYS, and *=DAYS for all other tenants. A tenant's id may have an equals sign.
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

// The interval of looking for expired threads, and the shorter one after some were found.
const (
	expireEvery = time.Hour
	expireAgain = time.Minute
)

// Retain deletes expired threads until ctx ends. It logs errors and retries. Only the process with partition 0 does it, because each
// deletion makes the server scan all parts of a table.
func (s *Service) Retain(ctx context.Context, st store.Expirer, r Retention) error {
	for {
		next := expireAgain
		if s.owned.epoch(0) != 0 {
			next = s.expire(ctx, st, r)
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// expire deletes the expired threads of all tenants once, and returns the time until the next call.
func (s *Service) expire(ctx context.Context, st store.Expirer, r Retention) time.Duration {
	next := expireEvery
	rules := maps.Clone(r)
	delete(rules, everyOther)
	if others, has := r[everyOther]; has {
		tenants, err := st.Tenants(ctx)
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "expired threads of tenants without a rule of their own stay for now", "error", err)
		}
		for _, tenant := range tenants {
			if _, named := rules[tenant]; !named {
				rules[tenant] = others
			}
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(rules)) {
		n, err := st.Expire(ctx, tenant, time.Now().Add(-rules[tenant]))
		s.metrics.expired.Add(float64(n))
		if ctx.Err() != nil {
			return next
		}
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "expired threads stay for now", "tenant", tenant, "error", err)
		}
		if n > 0 {
			next = expireAgain
			s.cfg.Logger.InfoContext(ctx, "expired threads deleted", "tenant", tenant, "threads", n)
		}
	}
	return next
}
