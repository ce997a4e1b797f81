package indexer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/skeinhq/skein/pkg/store"
)

// sieve writes entries and finds those that the store refuses.
type sieve struct {
	store  store.Writer
	busy   *atomic.Int64 // since when the present call has lasted, in nanoseconds
	stands func(error)   // is told of the first refusal; nil: nobody is

	taken   int       // entries of runs
	refused []refused // in their order
}

// refused is an entry with the store's reason.
type refused struct {
	store.Entry
	reason error
}

// mostRefused is how many refused entries of a block that has nothing else are bad data. More are a matter of the store:
// a column of another type, a constraint on all rows.
const mostRefused = 16

// mostTried bounds the refused entries that are looked for while the store has taken none: each costs some calls of the store, and parts of its
// tables, and all of it is done again with the next try.
const mostTried = 256

// errRefusesAll: waiting for the store loses nothing, and dead letters would.
var errRefusesAll = errors.New("the store refuses all runs that it is given")

// write writes entries in their order, without those that the store refuses. After an error some may be durable.
func (s *sieve) write(ctx context.Context, entries []store.Entry) error {
	if err := s.halve(ctx, entries); err != nil {
		return err
	}
	if s.taken == 0 && len(s.refused) > mostRefused {
		return fmt.Errorf("%w, %d in this block; the first one: %w", errRefusesAll, len(s.refused), s.refused[0].reason)
	}
	return nil
}

// halve writes entries, and each half by itself where the store refuses them together.
func (s *sieve) halve(ctx context.Context, entries []store.Entry) error {
	err := s.call(ctx, entries)
	switch {
	case err == nil:
		for _, e := range entries {
			if e.Run != nil {
				s.taken++
			}
		}
		return nil
	case !errors.Is(err, store.ErrRefused):
		return err
	case len(entries) > 1:
		if err := s.halve(ctx, entries[:len(entries)/2]); err != nil {
			return err
		}
		return s.halve(ctx, entries[len(entries)/2:])
	case entries[0].Run == nil: // it has nothing that could be wrong
		return err
	}
	if len(s.refused) == 0 && s.stands != nil {
		s.stands(err)
	}
	if s.refused = append(s.refused, refused{entries[0], err}); s.taken == 0 && len(s.refused) >= mostTried {
		return fmt.Errorf("%w: %d one after another; the first one: %w", errRefusesAll, len(s.refused), s.refused[0].reason)
	}
	return nil
}

func (s *sieve) call(ctx context.Context, entries []store.Entry) error {
	s.busy.Store(time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s.store.Write(ctx, entries)
}
