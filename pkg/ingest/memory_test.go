package ingest

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What net/http holds for requests that wait for their first memory is in no budget: so few of them wait, and the others are refused at once.
func TestClaim_FewWaitForTheirFirstMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		window := newWindow(100, nil)
		under := &claim{of: window, tenant: "loud"}
		if rej := under.take(75); rej != nil {
			t.Fatal(rej)
		}
		begun := time.Now()
		var atOnce, later atomic.Int64
		var wg sync.WaitGroup
		for range 2 * maxNewcomers {
			wg.Go(func() {
				h := &claim{of: window, tenant: "loud"}
				switch rej := h.take(1); {
				case rej == nil || rej.status != http.StatusTooManyRequests || rej.limit != "request_memory":
					t.Errorf("answered %v", rej)
				case time.Since(begun) == 0:
					atOnce.Add(1)
				default:
					later.Add(1)
				}
			})
		}
		synctest.Wait()
		wg.Go(func() { // another tenant has places of its own
			rej := (&claim{of: window, tenant: "quiet"}).take(24)
			if rej == nil || time.Since(begun) < memoryWait {
				t.Errorf("another tenant, for which there is no room, gets %v after %v", rej, time.Since(begun))
			}
		})
		synctest.Wait()
		// One that holds something waits all the same.
		if rej := under.take(1); rej == nil || time.Since(begun) < memoryWait {
			t.Errorf("a request under way gets %v after %v", rej, time.Since(begun))
		}
		wg.Wait()
		if want := int64(maxNewcomers / (tenantShare + 1) * tenantShare); later.Load() != want || atOnce.Load() != 2*maxNewcomers-want {
			t.Errorf("%d waited and %d were refused at once, want %d to wait", later.Load(), atOnce.Load(), want)
		}
		under.close()
		if window.Held() != 0 || window.newcomers.Held() != 0 {
			t.Errorf("%d held and %d waiting at the end", window.Held(), window.newcomers.Held())
		}
	})
}
