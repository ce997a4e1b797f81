package tail

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// A reader learns that it has reached its End, even if it caught up from the log and met only other threads' records.
func TestReader_ReachesItsEndByCatchingUp(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), func(c *Config) { c.Window = 0 })
	s.write(0, 10, "acme/a")
	r := s.follow("acme/b", 0)
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
	defer cancel()
	if b, err := r.Next(ctx); err != nil || len(b.Records) > 0 || b.Through < r.End() {
		t.Errorf("%+v, %v: want no records through %d", b, err, r.End())
	}
}

// Readers that take a batch and then nothing more, because their clients do not read, keep no slot, neither from their own tenant nor from
// others.
func TestReader_GivesItsSlotBackBetweenBatches(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), func(c *Config) { c.Window, c.CatchUps = 0, 1 })
	const records = 3 * batchBytes / 1000
	s.write(0, records, "acme/a")
	var want []int64
	for o := range int64(records) {
		want = append(want, o)
	}
	stalls := s.follow("acme/a", 0)
	had := read(t, stalls, 1)
	expect(t, read(t, s.follow("acme/a", 0), records), want)
	expect(t, append(had, read(t, stalls, records-len(had))...), want)
}

func TestReader_WaitsForItsTenantsShareOfCatchUps(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), func(c *Config) { c.Window, c.CatchUps = 0, 3 })
	s.write(0, 2, "loud/a", "quiet/a")
	slots := s.slots
	for slots.Take("loud", 1) {
	}
	loud := s.follow("loud/a", 0)
	got := make(chan []int64)
	go func() { got <- read(t, loud, 1) }()
	expect(t, read(t, s.follow("quiet/a", 0), 1), []int64{1})
	select {
	case o := <-got:
		t.Errorf("a tenant that has its share reads %v", o)
	default:
	}
	slots.Give("loud", 1)
	expect(t, <-got, []int64{0})
}

// The first reader of a partition does not wait until the ring has read its window, if it needs only the end of that.
func TestReader_OvertakesARingThatIsFilling(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1))
	s.write(0, 100, "acme/a")
	filling := &partition{id: 0, ready: make(chan struct{}), ring: newRing(0), filled: 100, toEnd: map[*Reader]struct{}{}}
	close(filling.ready)
	s.mu.Lock()
	s.partitions[0] = filling // which the fetch loop does not read yet
	s.mu.Unlock()
	r := s.follow("acme/a", 97)
	expect(t, read(t, r, 3), []int64{97, 98, 99})
	other := s.follow("acme/b", 97)
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
	defer cancel()
	if b, err := other.Next(ctx); err != nil || b.Through < 100 {
		t.Errorf("%+v, %v: want to be through 100", b, err)
	}
	s.mu.Lock() // the ring is read from its start on
	s.opened = append(s.opened, filling)
	s.mu.Unlock()
	s.write(100, 1, "acme/a")
	expect(t, read(t, r, 1), []int64{100})
}

// A reader whose Next ends before it has got a slot, as a stream's does for each heartbeat, keeps its place among those that wait.
func TestReader_KeepsItsPlaceAmongThoseThatWait(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), func(c *Config) { c.Window, c.CatchUps = 0, 1 })
	s.write(0, 2, "acme/a", "acme/b")
	slots := s.slots
	slots.Take("acme", 1)
	first := s.follow("acme/a", 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := first.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	later := slots.Queue("acme", 1)
	slots.Give("acme", 1)
	select {
	case <-later.Ready():
		t.Error("one that came later is served before it")
	default:
	}
	expect(t, read(t, first, 1), []int64{0})
	first.Close()
	<-later.Ready()
	later.Leave()
}
