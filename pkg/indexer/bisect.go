package indexer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/skeinhq/skein/pkg/store"
)

// bisector writes the entries of a block and finds those that the store refuses. If the store refuses the block, the bisector writes
// the tenants one by one, so that no tenant's rows affect another's.
type bisector struct {
	store store.Writer
	busy  *atomic.Int64 // start of the current call, in nanoseconds
	fault func(error)   // gets the first refusal; it may be nil
	// worked means that the store has taken a run within the time trust. If so, the tenant with the most refused runs does not count for
	// errRefusesAll.
	worked bool

	taken   int // entries of runs
	refused []refused
}

// refused is an entry with the store's reason.
type refused struct {
	store.Entry
	reason error
}

// maxRefused is how many refused runs count as bad data even if the store takes no run of the block. More of them may be a fault of the
// store: a column of another type, a constraint on all rows.
const maxRefused = 16

// maxTried limits the runs of a tenant that are tried one by one while the store takes none of them: each costs calls of the store, and
// parts of its tables. Beyond the limit, if the store refuses several runs together, the bisector tries only the last one. If the store
// refuses that too, the others count as refused, untried.
const maxTried = 256

// trust is how long the store counts as working after it has taken a run. After that, a block with only refused runs waits, even if
// they are of one tenant.
const trust = 10 * time.Minute

// errRefusesAll makes the block wait, which loses nothing. With dead letters instead, the index would lose run after run.
var errRefusesAll = errors.New("the store refuses all runs that it is given")

// errUntried is the reason of runs that were not tried (maxTried).
var errUntried = fmt.Errorf("it was not tried, as the store refuses the tenant's %d runs before it, and a sample of those after them",
	maxTried)

// write writes entries in order, without those that the store refuses. After an error some may be durable.
func (s *bisector) write(ctx context.Context, entries []store.Entry) error {
	err := s.call(ctx, entries)
	if err != nil && !errors.Is(err, store.ErrRefused) {
		return err
	}
	tenants, last := byTenant(entries)
	if err == nil {
		for _, of := range tenants {
			s.taken += len(of)
		}
		return nil
	}
	most := 0 // refused runs of one tenant
	for i, of := range tenants {
		before := len(s.refused)
		t := tenantBisector{bisector: s, before: before}
		if err := t.halve(ctx, of); err != nil {
			return err
		}
		most = max(most, len(s.refused)-before)
		count := len(s.refused)
		if s.worked {
			count -= most
		}
		// Returns before the last tenant once more than maxTried runs are refused: a large block is not tried run by run.
		if tried := i > 0 && len(s.refused) > maxTried || i == len(tenants)-1; tried && s.taken == 0 && count > maxRefused {
			return fmt.Errorf("%w, %d in this block; the first one: %w", errRefusesAll, len(s.refused), s.refused[0].reason)
		}
	}
	if len(last) == 0 {
		return nil
	}
	return s.call(ctx, last) // it has no data of agents
}

// byTenant returns runs by tenant, in order, and the other entries: tombstones, erasures and positions.
func byTenant(entries []store.Entry) (tenants [][]store.Entry, last []store.Entry) {
	places := map[string]int{}
	for _, e := range entries {
		if e.Run == nil {
			last = append(last, e)
			continue
		}
		at, ok := places[e.Tenant]
		if !ok {
			at = len(tenants)
			places[e.Tenant], tenants = at, append(tenants, nil)
		}
		tenants[at] = append(tenants[at], e)
	}
	return tenants, last
}

// tenantBisector is a bisector for the runs of one tenant.
type tenantBisector struct {
	*bisector
	before int  // runs that were refused before the first one of this tenant
	takes  bool // the store has taken a run
}

// halve writes runs, and each half separately if the store refuses them together.
func (t *tenantBisector) halve(ctx context.Context, runs []store.Entry) error {
	err := t.call(ctx, runs)
	switch {
	case err == nil:
		t.takes = true
		t.taken += len(runs)
		return nil
	case !errors.Is(err, store.ErrRefused):
		return err
	case len(runs) == 1:
		if len(t.refused) == 0 && t.fault != nil {
			t.fault(err)
		}
		t.refused = append(t.refused, refused{runs[0], err})
		return nil
	case !t.takes && len(t.refused)-t.before >= maxTried:
		last := len(runs) - 1
		if err := t.halve(ctx, runs[last:]); err != nil {
			return err
		}
		runs = runs[:last]
		if !t.takes {
			for _, e := range runs {
				t.refused = append(t.refused, refused{e, errUntried})
			}
			return nil
		}
	}
	half := (len(runs) + 1) / 2
	if err := t.halve(ctx, runs[:half]); err != nil || half == len(runs) {
		return err
	}
	return t.halve(ctx, runs[half:])
}

func (s *bisector) call(ctx context.Context, entries []store.Entry) error {
	s.busy.Store(time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s.store.Write(ctx, entries)
}
