package share

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fill takes single units for a tenant until its share is used up, and returns how many it holds.
func fill(p *Pool, tenant string) int64 {
	for p.Take(tenant, 1) {
	}
	return p.HeldBy(tenant)
}

func TestPool_LeavesRoomForWhoeverComes(t *testing.T) {
	for _, c := range []struct {
		limit int64
		want  []int64 // one tenant after another, each as much as it gets
	}{
		{64, []int64{32, 16, 8, 4, 2, 1, 1, 0}},
		{3, []int64{1, 1, 1, 0}},
		{2, []int64{1, 1, 0}},
		{1, []int64{1, 0}},
	} {
		p := NewPool(c.limit)
		for i, want := range c.want {
			if got := fill(p, fmt.Sprint("tenant ", i)); got != want {
				t.Errorf("of %d, tenant %d gets %d, want %d", c.limit, i, got, want)
			}
		}
	}
}

func TestPool_IsSharedEvenlyByThoseWhoTakeInTurn(t *testing.T) {
	p := NewPool(90)
	for range 90 {
		p.Take("a", 1)
		p.Take("b", 1)
	}
	if a, b := p.HeldBy("a"), p.HeldBy("b"); a != 30 || b != 30 {
		t.Errorf("%d and %d, want a third of the pool each", a, b)
	}
}

func TestPool_TakesWholeAmountsOnly(t *testing.T) {
	p := NewPool(100)
	if p.Take("a", 51) || p.Held() != 0 {
		t.Error("more than half was taken at once")
	}
	if !p.Take("a", 50) || p.Take("a", 1) {
		t.Error("half is the share of who is alone")
	}
	p.Give("a", 50)
	if p.Held() != 0 || len(p.tenants) != 0 {
		t.Errorf("%d held, of %v, once all was given back", p.Held(), p.tenants)
	}
}

func TestPool_WaitServesOthersBesideWhoHoldsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(3)
		if err := p.Wait(t.Context(), "loud", 1); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancelCause(t.Context())
		left := errors.New("left")
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := p.Wait(ctx, "loud", 1); !errors.Is(err, left) {
					t.Errorf("a waiter that leaves gets %v", err)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		for _, tenant := range []string{"quiet", "third"} {
			if err := p.Wait(t.Context(), tenant, 1); err != nil || time.Since(begun) > 0 {
				t.Errorf("%s waited %v: %v", tenant, time.Since(begun), err)
			}
		}
		leave(left)
		wg.Wait()
		wg.Go(func() {
			if err := p.Wait(t.Context(), "loud", 1); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		p.Give("loud", 1)
		wg.Wait()
		if p.HeldBy("loud") != 1 || p.Held() != 3 || len(p.waiting) != 0 {
			t.Errorf("%d of %d held, %d wait", p.HeldBy("loud"), p.Held(), len(p.waiting))
		}
	})
}

func TestPool_AddSaysHowMuchIsTooMuch(t *testing.T) {
	p := NewPool(100)
	p.Add("a", 40)
	p.Add("b", 90)
	if p.Over() != 30 || !slices.Equal(p.Heaviest(), []string{"b"}) {
		t.Errorf("%d over, most of it %v", p.Over(), p.Heaviest())
	}
	p.Add("b", -90)
	p.Add("a", -40)
	if p.Over() != 0 || len(p.Heaviest()) > 0 {
		t.Errorf("%d over, most of it %v", p.Over(), p.Heaviest())
	}
}

// A tenant whose small requests never end must not keep out one that waits for much.
func TestPool_SmallRequestsDoNotOvertakeAWaiterThatHoldsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPoolOf(100, 3)
		p.Add("loud", 60)
		p.Add("quiet", 5)
		waited := make(chan error, 1)
		go func() { waited <- p.Wait(t.Context(), "quiet", 36) }()
		synctest.Wait()
		if p.Take("loud", 1) {
			t.Error("the tenant that holds more overtakes")
		}
		if p.Take("quiet", 1) {
			t.Error("the waiter's own tenant overtakes")
		}
		if !p.Take("third", 1) {
			t.Error("a tenant that holds less waits")
		}
		p.Give("third", 1)
		for range 16 { // each is given back and would be taken at once
			p.Give("loud", 1)
			p.Take("loud", 1)
		}
		synctest.Wait()
		select {
		case err := <-waited:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("it still waits, with %d free", p.Limit()-p.Held())
		}
		p.Give("quiet", 41)
	})
}

// A waiter that leaves lets those go on that it held up.
func TestPool_AWaiterThatLeavesHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100)
		p.Add("a", 30)
		ctx, leave := context.WithCancel(t.Context())
		go func() { _ = p.Wait(ctx, "a", 40) }()
		synctest.Wait()
		small := make(chan error, 1)
		go func() { small <- p.Wait(t.Context(), "a", 10) }()
		synctest.Wait()
		leave()
		synctest.Wait()
		select {
		case err := <-small:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it still waits")
		}
		p.Give("a", 40)
	})
}

// A tenant that comes waits for one turn of each of the others, however many of theirs have come before.
func TestPool_ServesTenantsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(2)
		for _, tenant := range []string{"one", "two"} {
			if !p.Take(tenant, 1) {
				t.Fatalf("%s has no turn", tenant)
			}
		}
		var places []*Place
		for range 50 {
			places = append(places, p.Queue("one", 1), p.Queue("two", 1))
		}
		third := p.Queue("third", 1)
		ready := func(w *Place) bool {
			select {
			case <-w.Ready():
				return true
			default:
				return false
			}
		}
		turns := 0
		for ; !ready(third) && turns < 100; turns++ {
			p.Give([]string{"one", "two"}[turns%2], 1)
		}
		if turns > 3 {
			t.Errorf("the third tenant had its turn after %d of others", turns)
		}
		p.Give("third", 1)
		for _, w := range places {
			if ready(w) {
				continue
			}
			w.Leave()
		}
		if len(p.waiting) != 0 || len(p.served) != 0 {
			t.Errorf("%d wait, and of %d tenants it is known when they were served", len(p.waiting), len(p.served))
		}
	})
}

// Waiters come, leave and are served at a cost that does not grow with their number: some milliseconds for all of these. One walk over
// those that wait for each of them would take half a minute.
func TestPool_ServesManyWaiters(t *testing.T) {
	const waiters = 30_000
	p := NewPool(2)
	p.Take("loud", 1)
	begun := time.Now()
	var places []*Place
	for range waiters {
		places = append(places, p.Queue("loud", 1))
		if !p.Take("quiet", 1) {
			t.Fatal("another tenant waits")
		}
		p.Give("quiet", 1)
	}
	for i := range waiters / 2 {
		places[waiters-1-i].Leave()
	}
	for i := range waiters / 2 {
		p.Give("loud", 1)
		select {
		case <-places[i].Ready():
		default:
			t.Fatalf("waiter %d is not served in its turn", i)
		}
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("%d waiters took %v", waiters, took)
	}
	if len(p.waiting) != 0 || len(p.heads) != 0 {
		t.Errorf("%d tenants wait at the end, %d of them first", len(p.waiting), len(p.heads))
	}
}
