package partition

import (
	"cmp"
	"slices"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/lineage"
)

// rest brings a thread's sealed runs from the local store as they are asked for (lineage.Rest). The others
// came with the thread, and so did the sealed ones that ended last: see partition.thread.
type rest struct {
	*thread
	store runstore.Thread
	// asked holds the names and branches that the store was asked for: what has come since is at hand.
	asked map[restKey]struct{}
}

type restKey struct {
	id     string
	branch bool
}

// first reports whether the store is asked for the first time.
func (r *rest) first(id string, branch bool) bool {
	k := restKey{id, branch}
	if _, ok := r.asked[k]; ok {
		return false
	}
	r.asked[k] = struct{}{}
	return true
}

// bring puts runs in that the thread does not have yet.
func (r *rest) bring(runs ...*runstore.Metadata) error {
	for _, m := range runs {
		if r.heads[m.ID] != nil {
			continue
		}
		h := &head{Metadata: *m}
		r.heads[h.ID] = h
		same := r.given[h.Given()]
		at, _ := slices.BinarySearchFunc(same, h.Start, func(o *head, start int64) int { return cmp.Compare(o.Start, start) })
		r.given[h.Given()] = slices.Insert(same, at, h)
		r.tips[h.Branch] = max(r.tips[h.Branch], h.Depth)
		if err := r.lineage.Add(h.Run); err != nil {
			return err
		}
	}
	return nil
}

// Named implements lineage.Rest.
func (r *rest) Named(id string, offset int64) error {
	if !r.first(id, false) {
		return nil
	}
	heads, err := r.store.ByID(id, offset)
	if err != nil {
		return err
	}
	return r.bring(heads...)
}

// Longest implements lineage.Rest.
func (r *rest) Longest(histories []lineage.Key, offset int64) error {
	h, err := r.store.ByHistory(histories, offset)
	if h == nil || err != nil {
		return err
	}
	return r.bring(h)
}

// FirstChild implements lineage.Rest.
func (r *rest) FirstChild(run string) (start int64, ok bool, err error) {
	return r.store.FirstChild(run)
}

// tip brings the depth of the deepest sealed run of a branch.
func (r *rest) tip(branch string) error {
	if !r.first(branch, true) {
		return nil
	}
	depth, err := r.store.Deepest(branch)
	r.tips[branch] = max(r.tips[branch], depth)
	return err
}

// all brings all runs.
func (r *rest) all() error {
	heads, err := r.store.All()
	if err != nil {
		return err
	}
	return r.bring(heads...)
}
