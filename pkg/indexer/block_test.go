package indexer

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

func put(b *block, partition int32, offset int64, run string, bytes int, epoch int64) {
	b.read(&kgo.Record{Partition: partition, Offset: offset}, epoch, time.Unix(1, 0))
	b.add(entry{Entry: store.Entry{Partition: partition, Version: offset, RunID: run}, bytes: int64(bytes), epoch: epoch})
}

func TestBlock_KeepsTheNewestRecordOfARun(t *testing.T) {
	b := newBlock()
	put(b, 0, 1, "a", 10, 1)
	put(b, 0, 2, "b", 20, 1)
	put(b, 0, 3, "a", 5, 1)
	if len(b.entries) != 2 || b.entries[0].Version != 3 || b.bytes != 25 || b.progress[0].next != 4 {
		t.Errorf("entries %+v, %d bytes, progress %v", b.entries, b.bytes, b.progress)
	}
}

func TestBlock_DropsWhatIsNoLongerOurs(t *testing.T) {
	a := newAssignment(prometheus.NewGauge(prometheus.GaugeOpts{}), kafka.NewLag(time.Now), new(kafka.VersionStops))
	a.assigned(t.Context(), nil, map[string][]int32{"runs": {0, 1, 2}})
	b := newBlock()
	for p := range int32(3) {
		put(b, p, 7, string('a'+p), 10, a.epoch(p))
	}
	a.revoked(t.Context(), nil, map[string][]int32{"runs": {0, 1}})
	a.assigned(t.Context(), nil, map[string][]int32{"runs": {1}}) // back again, but to be read anew
	put(b, 0, 8, "d", 10, a.epoch(0))                             // epoch 0: not ours
	b = a.current(b)
	if len(b.entries) != 1 || b.entries[0].Partition != 2 || len(b.progress) != 1 || b.bytes != 10 {
		t.Errorf("entries %+v, progress %v", b.entries, b.progress)
	}
	put(b, 2, 9, "c", 4, a.epoch(2))
	if len(b.entries) != 1 || b.bytes != 4 {
		t.Errorf("after a newer record of the run: %+v, %d bytes", b.entries, b.bytes)
	}
}

// Rows that are written behind a tombstone that the next owner has carried out would stay.
func TestAssignment_ARevocationWaitsForTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAssignment(prometheus.NewGauge(prometheus.GaugeOpts{}), kafka.NewLag(time.Now), new(kafka.VersionStops))
		a.assigned(t.Context(), nil, map[string][]int32{"runs": {0}})
		a.writing <- struct{}{}
		go a.revoked(t.Context(), nil, map[string][]int32{"runs": {0}})
		synctest.Wait()
		if a.epoch(0) == 0 {
			t.Error("the partition has gone in the middle of a write")
		}
		<-a.writing
		synctest.Wait()
		if a.epoch(0) != 0 {
			t.Error("the partition is still ours")
		}
	})
}

func TestBlock_IsFullBeforeItsLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		want  int // of how many records the first block is
	}{
		{"all in one", []int{10, 20, 30}, 3},
		{"by count", []int{1, 1, 1, 1, 1}, 4},
		{"by bytes", []int{60, 40, 1}, 2},
		{"one above the limit", []int{500, 1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBlock()
			for i, size := range c.sizes {
				if b.full(int64(size), 4, 100) {
					break
				}
				put(b, 0, int64(i), string('a'+rune(i)), size, 1)
			}
			if len(b.entries) != c.want {
				t.Errorf("a block of %d, want %d", len(b.entries), c.want)
			}
		})
	}
}

// A record of half a megabyte can hold hundreds of thousands of messages, each of which is a row.
func TestSizeOf_CountsRows(t *testing.T) {
	r := &kgo.Record{Value: make([]byte, 1000)}
	e := store.Entry{Run: &record.Run{Messages: make([]agui.Message, 9), InputMessages: make([]agui.Message, 90)}}
	if got := sizeOf(e, r); got != 1000+(runRows+99)*rowBytes {
		t.Errorf("%d bytes", got)
	}
	r.Value = bytes.Repeat([]byte(`{"function":{"name":"n","arguments":"{\"arguments\":1}"}}`), 50)
	if got := sizeOf(e, r) - int64(len(r.Value)); got != (runRows+99+50)*rowBytes {
		t.Errorf("with 50 tool calls %d bytes beside the value", got)
	}
}

// A newer record says nothing of what an older one has left behind: the tombstone between them does.
func TestBlock_KeepsATombstoneBeforeANewerRecord(t *testing.T) {
	b := newBlock()
	put := func(offset int64, run *record.Run) {
		b.add(entry{Entry: store.Entry{Version: offset, RunID: "a", Run: run}, epoch: 1})
	}
	put(1, &record.Run{})
	put(2, nil)
	put(3, &record.Run{})
	put(4, &record.Run{})
	if len(b.entries) != 2 || !b.entries[0].Tombstone() || b.entries[0].Version != 2 || b.entries[1].Version != 4 {
		t.Fatalf("entries %+v", b.entries)
	}
	put(5, nil)
	if len(b.entries) != 2 || b.entries[1].Version != 5 || !b.entries[1].Tombstone() {
		t.Errorf("after another tombstone: %+v", b.entries)
	}
}

// An erasure says that the tombstones before it are written, and is written behind them.
func TestBlock_WritesErasuresBehindAllRuns(t *testing.T) {
	b := newBlock()
	erase := func(offset, below int64) {
		b.add(entry{Entry: store.Entry{Version: offset, ThreadID: "t", Erasure: &store.Erasure{Below: below}}, epoch: 1})
	}
	erase(1, 5)
	put(b, 0, 2, "a", 10, 1) // a tombstone
	put(b, 0, 3, "b", 10, 1)
	erase(4, 9)
	b.positions[0] = entry{Entry: store.Entry{Version: 5, Position: &store.Position{Next: 10}}}
	var got []int64
	for _, e := range b.ordered() {
		got = append(got, e.Version)
	}
	if want := []int64{2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("written are %v, want %v", got, want)
	}
}
