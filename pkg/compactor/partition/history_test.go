package partition

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
)

// goesOn returns a history with one more message of so many bytes behind it.
func goesOn(t *testing.T, h lineage.History, id string, size int) lineage.History {
	t.Helper()
	m := agui.Message{ID: id, Role: agui.RoleAssistant, Raw: json.RawMessage(assistantMessage(id, strings.Repeat("x", size)))}
	h, err := lineage.RestoreFrom(h.Share(), lineage.Content{RunID: id, Messages: []agui.Message{m}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A conversation counts once, however many of its histories are kept; what was used longest ago goes first, of
// whichever partition, and the one that was used last stays though it is over the bound alone.
func TestHistories_KeepWhatWasUsedLastWithinTheirBound(t *testing.T) {
	const size = 1_000
	all := NewHistories(300 << 10)
	one, other := all.own(), all.own()
	var h lineage.History
	for i := range 100 {
		h = goesOn(t, h, fmt.Sprint("m", i), size)
		one.put(fmt.Sprint("r", i), h)
	}
	if _, there := one.get("r0"); !there || all.size > 200*size {
		t.Fatalf("100 histories of one conversation of 100 KB count for %d bytes", all.size)
	}
	if _, there := other.get("r1"); there {
		t.Error("a partition is given what another one kept")
	}
	for i := range 100 {
		other.put(fmt.Sprint("s", i), goesOn(t, lineage.History{}, "m", size))
	}
	if _, there := one.get("r0"); !there {
		t.Error("what was used of late has left")
	}
	for i := range 300 {
		other.put(fmt.Sprint("s", i), goesOn(t, lineage.History{}, "m", size))
		if all.size > all.limit {
			t.Fatalf("%d bytes are kept, %d are allowed", all.size, all.limit)
		}
	}
	if _, there := one.get("r99"); there {
		t.Error("what was used longest ago is still kept")
	}
	large := goesOn(t, lineage.History{}, "m", all.limit)
	one.put("large", large)
	if _, there := one.get("large"); !there || len(all.byKey) != 1 || len(all.lists) != 1 {
		t.Errorf("one over the bound: it is there: %t, with %d others of %d lists", there, len(all.byKey)-1, len(all.lists))
	}
	other.put("s", goesOn(t, lineage.History{}, "m", size))
	if _, there := one.get("large"); there || all.size > all.limit {
		t.Errorf("behind it %d bytes are kept", all.size)
	}
	other.drop("s")
	if all.size != 0 || len(all.byKey) != 0 || len(all.lists) != 0 || all.order.Len() != 0 {
		t.Errorf("with nothing kept %d bytes are counted", all.size)
	}
}

// The bound means bytes of memory: a conversation holds no more than it counts for. (What other tests leave to the
// garbage collector can make it look like less.)
func TestHistories_HoldNoMoreThanTheyAreCountedFor(t *testing.T) {
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, size := range []int{10, 1_000} {
		all := NewHistories(1 << 30)
		before := heap()
		for range 20 {
			own, h := all.own(), lineage.History{}
			for i := range 1_000 {
				h = goesOn(t, h, fmt.Sprintf("message-%d", i), size)
				own.put(fmt.Sprintf("run-%d", i), h)
			}
		}
		held := heap() - before
		t.Logf("with %d bytes a message: %d bytes held, %d counted", size, held, all.size)
		if held > all.size*5/4 {
			t.Errorf("with %d bytes a message %d bytes are held and %d counted", size, held, all.size)
		}
		runtime.KeepAlive(all)
	}
}
