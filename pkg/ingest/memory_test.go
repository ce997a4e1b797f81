package ingest

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// What begins is refused at once where its tenant has no room, and leaves some for what goes on, which waits for a while.
func TestClaim_LeavesRoomForWhatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newBudget(800, nil)
		begun := time.Now()
		under := &claim{of: memory, tenant: "loud"}
		if rej := under.take(500); rej != nil {
			t.Fatal(rej)
		}
		if rej := (&claim{of: memory, tenant: "loud"}).take(1); rej == nil || rej.status != http.StatusTooManyRequests || rej.limit != "memory" {
			t.Errorf("what begins gets %v", rej)
		}
		if rej := under.take(100); rej != nil || time.Since(begun) != 0 {
			t.Errorf("what goes on gets %v after %v", rej, time.Since(begun))
		}
		if rej := under.take(1); rej == nil || time.Since(begun) != memoryWait {
			t.Errorf("beyond its share it gets %v after %v", rej, time.Since(begun))
		}
		if rej := (&claim{of: memory, tenant: "quiet"}).take(50); rej != nil {
			t.Errorf("another tenant gets %v", rej)
		}
		under.close()
		if n := memory.Held(); n != 50 {
			t.Errorf("%d held at the end", n)
		}
	})
}
