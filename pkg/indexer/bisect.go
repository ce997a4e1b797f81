package indexer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skeinhq/skein/pkg/store"
)

// bisector writes the entries of a block and finds those that the store refuses. If the store refuses the block, it writes the tenants
// one by one, so that no tenant's rows affect another's.
type bisector struct {
	store store.Writer
	busy  *atomic.Int64 // start of the current call, in nanoseconds
	fault func(error)   // gets the first refusal; it may be nil
	// worked means that the store has taken a run within trust. Then the runs of the tenant with most refused runs do not count for
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

// maxRefused is how many refused runs of a block are bad data even if the store takes no run of the block. More may be a fault of the
// store: a column of another type, a constraint on all rows.
const maxRefused = 16

// maxTried is how many runs of a tenant are tried one by one while the store takes none of them: each costs calls of the store, and
// parts of its tables. The tenant's remaining runs in the block are tried as that many pieces, each as a whole and by its last run. If
// the store takes any, all are tried one by one; else they count as refused, untried.
const (
	maxTried = 256
	pieces   = 32
)

// trust is how long the store counts as working after it has taken a run. After that, a block with only refused runs waits, even of one
// tenant.
const trust = 10 * time.Minute

// errRefusesAll makes the block wait, which loses nothing. With dead letters the index would lose run by run.
var errRefusesAll = errors.New("the store refuses all runs that it is given")

// errUntried is the reason of runs that were not tried (maxTried).
var errUntried = fmt.Errorf("it was not tried, as the store refuses the tenant's %d runs before it, and a sample of those after them",
	maxTried)

// write writes entries in order, without those that the store refuses. After an error some may be durable.
func (s *bisector) write(ctx context.Context, entries []store.Entry) error {
	err := s.call(ctx, entries)
	if !errors.Is(err, store.ErrRefused) {
		if err == nil {
			s.taken += runs(entries)
		}
		return err
	}
	tenants, last := byTenant(entries)
	most := 0 // refused runs of one tenant
	for i, of := range tenants {
		before := len(s.refused)
		if err := s.bisect(ctx, of); err != nil {
			return err
		}
		most = max(most, len(s.refused)-before)
		count := len(s.refused)
		if s.worked {
			count -= most
		}
		// After very many tried runs it does not wait for the last tenant: a large block is not tried run by run if the store takes nothing.
		if tried := i > 0 && len(s.refused) > maxTried || i == len(tenants)-1; tried && s.taken == 0 && count > maxRefused {
			return fmt.Errorf("%w, %d in this block; the first one: %w", errRefusesAll, len(s.refused), s.refused[0].reason)
		}
	}
	if len(last) == 0 {
		return nil
	}
	return s.call(ctx, last) // these have no data of agents
}

// byTenant returns the records of runs by tenant, in order, and the entries that come after all of them: erasures and positions.
func byTenant(entries []store.Entry) (tenants [][]store.Entry, last []store.Entry) {
	places := map[string]int{}
	for _, e := range entries {
		if e.Erasure != nil || e.Position != nil {
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

// runs counts the entries of runs.
func runs(entries []store.Entry) (n int) {
	for _, e := range entries {
		if e.Run != nil {
			n++
		}
	}
	return n
}

// bisect writes entries of one tenant, without those that the store refuses.
func (s *bisector) bisect(ctx context.Context, entries []store.Entry) error {
	t := tenantBisector{bisector: s}
	if err := t.halve(ctx, entries); !errors.Is(err, errUntried) {
		return err
	}
	untried := entries[t.decided:]
	takes, err := t.takesAnyOf(ctx, untried)
	if err != nil {
		return err
	}
	if takes {
		t.takes = true
		return t.halve(ctx, untried)
	}
	var tombstones []store.Entry
	for _, e := range untried {
		if e.Run == nil {
			tombstones = append(tombstones, e)
			continue
		}
		s.refused = append(s.refused, refused{e, errUntried})
	}
	if len(tombstones) == 0 {
		return nil
	}
	return s.call(ctx, tombstones)
}

// tenantBisector is a bisector for the entries of one tenant.
type tenantBisector struct {
	*bisector
	decided int  // entries that were written or refused: the first ones
	refused int  // runs of them
	takes   bool // the store has taken a run
}

// takesAnyOf reports whether the store takes any of the entries: it tries pieces of them as a whole, and the last run of each.
func (t *tenantBisector) takesAnyOf(ctx context.Context, entries []store.Entry) (bool, error) {
	for piece := range slices.Chunk(entries, max(1, (len(entries)+pieces-1)/pieces)) {
		for runs(piece) > 0 {
			err := t.call(ctx, piece)
			if !errors.Is(err, store.ErrRefused) {
				return err == nil, err
			}
			if len(piece) == 1 {
				break
			}
			last := len(piece) - 1
			for piece[last].Run == nil {
				last--
			}
			piece = piece[last : last+1]
		}
	}
	return false, nil
}

// halve writes entries, and each half separately if the store refuses them together. It returns errUntried after maxTried refused runs.
func (t *tenantBisector) halve(ctx context.Context, entries []store.Entry) error {
	if !t.takes && t.refused >= maxTried {
		return errUntried
	}
	err := t.call(ctx, entries)
	switch {
	case err == nil:
		n := runs(entries)
		t.takes = t.takes || n > 0
		t.taken += n
		t.decided += len(entries)
		return nil
	case !errors.Is(err, store.ErrRefused):
		return err
	case len(entries) > 1:
		if err := t.halve(ctx, entries[:len(entries)/2]); err != nil {
			return err
		}
		return t.halve(ctx, entries[len(entries)/2:])
	case entries[0].Run == nil: // a tombstone has no data of agents
		return err
	}
	if len(t.bisector.refused) == 0 && t.fault != nil {
		t.fault(err)
	}
	t.bisector.refused = append(t.bisector.refused, refused{entries[0], err})
	t.refused++
	t.decided++
	return nil
}

func (s *bisector) call(ctx context.Context, entries []store.Entry) error {
	s.busy.Store(time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s.store.Write(ctx, entries)
}
