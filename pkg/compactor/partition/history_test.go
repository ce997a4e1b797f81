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

// A conversation counts once, however many of its histories are kept; the one that was used longest ago goes first, with all
// of its histories, and the one that was used last stays though it is over the limit alone.
func TestHistories_KeepWhatWasUsedLastWithinTheirLimit(t *testing.T) {
	const size = 1_000
	kept := newHistories(300 << 10)
	var long lineage.History
	for i := range 100 {
		long = goesOn(t, long, fmt.Sprint("m", i), size)
		kept.put(fmt.Sprint("r", i), long)
	}
	if _, there := kept.get("r0"); !there || kept.size > 200*size {
		t.Fatalf("100 histories of one conversation of 100 KB count for %d bytes", kept.size)
	}
	for i := range 100 {
		kept.put(fmt.Sprint("s", i), goesOn(t, lineage.History{}, "m", size))
		if i == 50 {
			kept.get("r7")
		}
	}
	if _, there := kept.get("r0"); !there {
		t.Error("what was used of late has left")
	}
	for i := range 300 {
		kept.put(fmt.Sprint("s", i), goesOn(t, lineage.History{}, "m", size))
		if kept.size > kept.limit {
			t.Fatalf("%d bytes are kept, %d are allowed", kept.size, kept.limit)
		}
	}
	for _, run := range []string{"r0", "r99"} {
		if _, there := kept.get(run); there {
			t.Errorf("what was used longest ago is still kept: %s", run)
		}
	}
	large := goesOn(t, lineage.History{}, "m", kept.limit)
	kept.put("large", large)
	if _, there := kept.get("large"); !there || len(kept.byRun) != 1 || len(kept.byID) != 1 {
		t.Errorf("one over the limit: it is there: %t, with %d others of %d lists", there, len(kept.byRun)-1, len(kept.byID))
	}
	kept.put("s", goesOn(t, lineage.History{}, "m", size))
	if _, there := kept.get("large"); there || kept.size > kept.limit {
		t.Errorf("behind it %d bytes are kept", kept.size)
	}
	kept.drop("s")
	if kept.size != 0 || len(kept.byRun) != 0 || len(kept.byID) != 0 || kept.order.Len() != 0 {
		t.Errorf("with nothing kept %d bytes are counted", kept.size)
	}
}

// The states of one conversation's runs are within the limit, too: of many large ones the oldest leave.
func TestHistories_KeepTheStatesOfOneConversationWithinTheirLimit(t *testing.T) {
	kept := newHistories(100 << 10)
	var h lineage.History
	for i := range 100 {
		h = goesOn(t, h, fmt.Sprint("m", i), 10)
		h.State = json.RawMessage(`"` + strings.Repeat("x", 10<<10) + `"`)
		kept.put(fmt.Sprint("r", i), h)
		if _, there := kept.get(fmt.Sprint("r", i)); !there {
			t.Fatalf("the history of run %d is not there", i)
		}
	}
	if _, there := kept.get("r0"); there || len(kept.byRun) < 5 || kept.size > 2*kept.limit {
		t.Errorf("%d histories are kept, of %d bytes; the first of them: %t", len(kept.byRun), kept.size, there)
	}
}

// The limit means bytes of memory: a conversation holds no more than it counts for. (What other tests leave to the
// garbage collector can make it look like less.)
func TestHistories_HoldNoMoreThanTheyAreCountedFor(t *testing.T) {
	for _, size := range []int{10, 1_000} {
		kept := newHistories(1 << 30)
		before := heapBytes()
		for thread := range 20 {
			var h lineage.History
			for i := range 1_000 {
				h = goesOn(t, h, fmt.Sprintf("message-%d", i), size)
				kept.put(fmt.Sprintf("run-%d-%d", thread, i), h)
			}
		}
		held := heapBytes() - before
		t.Logf("with %d bytes a message: %d bytes held, %d counted", size, held, kept.size)
		if held > kept.size*5/4 {
			t.Errorf("with %d bytes a message %d bytes are held and %d counted", size, held, kept.size)
		}
		runtime.KeepAlive(kept)
	}
}
