package partition

import (
	"cmp"
	"container/heap"
	"container/list"
	"strings"
	"time"
)

// expiryEntry is a run and the time of its last record (since): see retirement.
type expiryEntry struct {
	key           string // of its record
	since, sorted time.Time
	place         int
	// of holds the entries of its tenant, and element is its place there.
	of      *list.List
	element *list.Element
	// begun is when the run began, and inOrder its place among all runs by that.
	begun   time.Time
	inOrder *list.Element
}

// expiryQueue is a heap of runs by the time of their last record. Each record changes that time (since); the entry moves in the heap only
// once it reaches the front (sorted).
type expiryQueue struct {
	byKey map[string]*expiryEntry
	heap  expiryHeap
	// tenants has each tenant's entries by their last records, oldest first.
	tenants map[string]*list.List
	// order has all entries as they were added.
	order list.List
}

func newExpiryQueue() *expiryQueue {
	return &expiryQueue{byKey: map[string]*expiryEntry{}, tenants: map[string]*list.List{}}
}

func (w *expiryQueue) add(key string, since time.Time) *expiryEntry {
	one := &expiryEntry{key: key, since: since, sorted: since, begun: since}
	w.byKey[key] = one
	tenant := tenantOf(key)
	if one.of = w.tenants[tenant]; one.of == nil {
		one.of = list.New()
		w.tenants[tenant] = one.of
	}
	one.element, one.inOrder = one.of.PushBack(one), w.order.PushBack(one)
	heap.Push(&w.heap, one)
	return one
}

// refresh sets the time of a run's last record. That time goes back only if stream time does.
func (w *expiryQueue) refresh(one *expiryEntry, since time.Time) {
	one.of.MoveToBack(one.element)
	if one.since = since; since.Before(one.sorted) {
		one.sorted = since
		heap.Fix(&w.heap, one.place)
	}
}

func (w *expiryQueue) drop(key string) {
	if one := w.byKey[key]; one != nil {
		heap.Remove(&w.heap, one.place)
		delete(w.byKey, key)
		w.order.Remove(one.inOrder)
		if one.of.Remove(one.element); one.of.Len() == 0 {
			delete(w.tenants, tenantOf(key))
		}
	}
}

// tenantOf returns the tenant of a run's record key, escaped as it is there.
func tenantOf(key string) string {
	tenant, _, _ := strings.Cut(key, "/")
	return tenant
}

// countOf returns how many runs a tenant has in the queue.
func (w *expiryQueue) countOf(tenant string) int {
	if of := w.tenants[tenant]; of != nil {
		return of.Len()
	}
	return 0
}

// oldestOf returns the tenant's run whose last record came first; nil if it has none.
func (w *expiryQueue) oldestOf(tenant string) *expiryEntry {
	if of := w.tenants[tenant]; of != nil {
		return of.Front().Value.(*expiryEntry)
	}
	return nil
}

// begun returns when the run was added that is in the queue longest; zero if there is none.
func (w *expiryQueue) begun() time.Time {
	if first := w.order.Front(); first != nil {
		return first.Value.(*expiryEntry).begun
	}
	return time.Time{}
}

// oldest returns the run that has been idle longest; nil if there is none.
func (w *expiryQueue) oldest() *expiryEntry {
	for len(w.heap) > 0 {
		first := w.heap[0]
		if first.since.Equal(first.sorted) {
			return first
		}
		first.sorted = first.since
		heap.Fix(&w.heap, 0)
	}
	return nil
}

// expiryHeap implements heap.Interface.
type expiryHeap []*expiryEntry

func (h expiryHeap) Len() int { return len(h) }
func (h expiryHeap) Less(i, j int) bool {
	return cmp.Or(h[i].sorted.Compare(h[j].sorted), cmp.Compare(h[i].key, h[j].key)) < 0
}
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *expiryHeap) Push(x any) {
	one := x.(*expiryEntry)
	one.place = len(*h)
	*h = append(*h, one)
}

func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return one
}
