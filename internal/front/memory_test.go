package front

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skeinhq/skein/internal/share"
)

// What begins is refused at once if its tenant has no room, and leaves some for what goes on, which waits for a while.
func TestClaim_LeavesRoomForWhatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &Memory{Pool: share.NewPoolOf(800, 3), Leave: 100, Patience: 2 * time.Second}
		begun := time.Now()
		under := memory.Claim("loud", 0)
		if err := under.Take(500); err != nil {
			t.Fatal(err)
		}
		var p *Problem
		if err := memory.Claim("loud", 0).Take(1); !errors.As(err, &p) || p.Status != http.StatusTooManyRequests || p.Limit != "memory" {
			t.Errorf("what begins gets %v", err)
		}
		if err := under.Take(100); err != nil || time.Since(begun) != 0 {
			t.Errorf("what goes on gets %v after %v", err, time.Since(begun))
		}
		if err := under.Take(1); !errors.As(err, &p) || p.Status != http.StatusUnprocessableEntity || time.Since(begun) != 0 {
			t.Errorf("beyond what a tenant may ever have it gets %v after %v", err, time.Since(begun))
		}
		if err := memory.Claim("quiet", 0).Take(50); err != nil {
			t.Errorf("another tenant gets %v", err)
		}
		under.Close()
		if n := memory.Held(); n != 50 {
			t.Errorf("%d held at the end", n)
		}
	})
}
