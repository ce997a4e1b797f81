package partition

import (
	"cmp"
	"slices"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/lineage"
)

// loader loads sealed runs of a thread from the local store as they are asked for (lineage.Rest). The open ones came with
// the thread, and so did the sealed ones that ended last: see Processor.thread.
type loader struct {
	*thread
	store runstore.Thread
	// asked holds the names and branches that the store was asked for: what has come since is in memory.
	asked map[loaderKey]struct{}
}

type loaderKey struct {
	id     string
	branch bool
}

// first reports whether the store is asked for the first time.
func (r *loader) first(id string, branch bool) bool {
	k := loaderKey{id, branch}
	if _, ok := r.asked[k]; ok {
		return false
	}
	r.asked[k] = struct{}{}
	return true
}

// loadByKey adds the runs that the thread does not have yet.
func (r *loader) loadByKey(runs ...*runstore.Metadata) error {
	for _, m := range runs {
		if r.runs[m.ID] != nil {
			continue
		}
		h := &threadRun{Metadata: *m}
		r.runs[h.ID] = h
		same := r.clientRunID[h.Given()]
		at, _ := slices.BinarySearchFunc(same, h.Start, func(o *threadRun, start int64) int { return cmp.Compare(o.Start, start) })
		r.clientRunID[h.Given()] = slices.Insert(same, at, h)
		r.tips[h.Branch] = max(r.tips[h.Branch], h.Depth)
		if err := r.lineage.Add(h.Run); err != nil {
			return err
		}
	}
	return nil
}

// Named implements lineage.Rest.
func (r *loader) Named(id string, offset int64) error {
	if !r.first(id, false) {
		return nil
	}
	heads, err := r.store.ByID(id, offset)
	if err != nil {
		return err
	}
	return r.loadByKey(heads...)
}

// Longest implements lineage.Rest.
func (r *loader) Longest(histories []lineage.Key, offset int64) error {
	h, err := r.store.ByHistory(histories, offset)
	if h == nil || err != nil {
		return err
	}
	return r.loadByKey(h)
}

// FirstChild implements lineage.Rest.
func (r *loader) FirstChild(run string) (start int64, ok bool, err error) {
	return r.store.FirstChild(run)
}

// tip brings the depth of the deepest sealed run of a branch.
func (r *loader) tip(branch string) error {
	if !r.first(branch, true) {
		return nil
	}
	depth, err := r.store.Deepest(branch)
	r.tips[branch] = max(r.tips[branch], depth)
	return err
}

// all brings all runs.
func (r *loader) all() error {
	heads, err := r.store.All()
	if err != nil {
		return err
	}
	return r.loadByKey(heads...)
}
