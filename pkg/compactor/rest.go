package compactor

import (
	"cmp"
	"slices"

	"github.com/skeinhq/skein/pkg/lineage"
)

// rest brings a thread's sealed runs from the local store as they are asked for (lineage.Rest). The others
// came with the thread, and so did the sealed ones that ended last: see partition.thread.
type rest struct {
	*thread
	store *localStore
	// asked holds the names and branches that the store was asked for: what has come since is at hand.
	asked map[restKey]struct{}
}

type restKey struct {
	table byte
	id    string
}

// first reports whether the store is asked for the first time.
func (r *rest) first(table byte, id string) bool {
	k := restKey{table, id}
	if _, ok := r.asked[k]; ok {
		return false
	}
	r.asked[k] = struct{}{}
	return true
}

// bring puts runs in that the thread does not have yet.
func (r *rest) bring(heads ...*head) error {
	for _, h := range heads {
		if r.heads[h.ID] != nil {
			continue
		}
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
	if !r.first(headTable, id) {
		return nil
	}
	heads, err := r.store.named(r.key, id, offset)
	if err != nil {
		return err
	}
	return r.bring(heads...)
}

// Longest implements lineage.Rest.
func (r *rest) Longest(histories []lineage.Key, offset int64) error {
	h, err := r.store.longest(r.key, histories, offset)
	if h == nil || err != nil {
		return err
	}
	return r.bring(h)
}

// FirstChild implements lineage.Rest.
func (r *rest) FirstChild(run string) (start int64, ok bool, err error) {
	return r.store.firstChild(r.key, run)
}

// tip brings the depth of the deepest sealed run of a branch.
func (r *rest) tip(branch string) error {
	if !r.first(tipTable, branch) {
		return nil
	}
	depth, err := r.store.deepest(r.key, branch)
	r.tips[branch] = max(r.tips[branch], depth)
	return err
}

// all brings all runs.
func (r *rest) all() error {
	heads, err := r.store.heads(r.key)
	if err != nil {
		return err
	}
	return r.bring(heads...)
}
