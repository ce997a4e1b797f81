package query

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// recordsOfThread implements live.Source from the index and skein.runs. Once the thread is open, its reads retry until
// the store answers, because the thread cannot take a record twice. Before that a failed read fails, and the caller
// of stream.open repeats all of them.
type recordsOfThread struct {
	*stream
	rows []store.Run
}

func (s *recordsOfThread) patiently(f func() error) error {
	if s.thread == nil {
		return f()
	}
	s.load.releaseSlot() // acquired by takeInTurn; the read may wait for the store
	return s.stream.patiently(f, errBehind, store.ErrNotFound)
}

func (s *recordsOfThread) row(run string) (store.Run, error) {
	i := slices.IndexFunc(s.rows, func(r store.Run) bool { return r.RunID == run })
	if i < 0 {
		return store.Run{}, fmt.Errorf("%w: run %q has no row", errBehind, run)
	}
	return s.rows[i], nil
}

// Record implements live.Source.
func (s *recordsOfThread) Record(run string) (rec *record.Run, _ error) {
	row, err := s.row(run)
	if err != nil {
		return nil, err
	}
	err = s.patiently(func() (err error) {
		rec, err = s.recordOf(row)
		return err
	})
	if errors.Is(err, ErrRecordGone) {
		return nil, fmt.Errorf("%w: run %q has a newer record: %w", errBehind, run, err)
	}
	return rec, err
}

// History implements live.Source.
func (s *recordsOfThread) History(run string) (lineage.History, error) {
	var h restored
	err := s.patiently(func() error {
		return s.load.withSlot(s.ctx, func() (err error) {
			h, err = s.restore(s.rows, run)
			return err
		})
	})
	return h.History, err
}

// Holding implements live.Source.
func (s *recordsOfThread) Holding(messageIDs []string) ([]string, error) {
	var versions map[string]int64
	err := s.patiently(func() (err error) {
		versions, err = s.store.Holding(s.ctx, s.Tenant, s.threadID, messageIDs)
		return err
	})
	return slices.Collect(maps.Keys(versions)), err
}
