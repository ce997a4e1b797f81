package partition

import (
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
)

// loader loads sealed runs of a thread from the local store as they are needed (lineage.Loader). A new thread already has the open runs and
// those that ended last: see Processor.thread.
type loader struct {
	*thread
	store runstore.Thread
	// requested has the ids and branches that were loaded; later runs are in memory.
	requested map[loaderKey]struct{}
}

type loaderKey struct {
	id     string
	branch bool
}

// first reports whether this is the first request for an id or a branch.
func (r *loader) first(id string, branch bool) bool {
	k := loaderKey{id, branch}
	if _, ok := r.requested[k]; ok {
		return false
	}
	r.requested[k] = struct{}{}
	return true
}

// put adds the runs that the thread does not have yet.
func (r *loader) put(runs ...*fold.Metadata) error {
	for _, m := range runs {
		if r.Get(m.ID) != nil {
			continue
		}
		h := &threadRun{Metadata: *m}
		r.Add(h)
		r.noteTip(h)
		if err := r.Lineage.Add(h.Run); err != nil {
			return err
		}
	}
	return nil
}

// ByID implements lineage.Loader.
func (r *loader) ByID(id string, offset int64) error {
	if !r.first(id, false) {
		return nil
	}
	runs, err := r.store.ByID(id, offset)
	if err != nil {
		return err
	}
	return r.put(runs...)
}

// ByKey implements lineage.Loader.
func (r *loader) ByKey(keys []lineage.Key, offset int64) error {
	h, err := r.store.ByKey(keys, offset)
	if h == nil || err != nil {
		return err
	}
	return r.put(h)
}

// FirstChild implements lineage.Loader.
func (r *loader) FirstChild(run string) (start int64, ok bool, err error) {
	return r.store.FirstChild(run)
}

// tip loads the depth of the deepest sealed run of a branch.
func (r *loader) tip(branch string) error {
	if !r.first(branch, true) {
		return nil
	}
	depth, err := r.store.Deepest(branch)
	r.tips.Set(branch, max(r.tips.At(branch), depth))
	return err
}

// all loads all runs.
func (r *loader) all() error {
	runs, err := r.store.All()
	if err != nil {
		return err
	}
	return r.put(runs...)
}
