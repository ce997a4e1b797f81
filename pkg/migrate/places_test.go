package migrate

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// A record that says a run's place alone holds none of its events: it begins and ends at the first of them.
func TestPlaces_OfARecordThatHoldsNoEvent(t *testing.T) {
	run := &record.Run{
		Tenant: "acme", ThreadID: "t", RunID: "r", Lineage: record.Lineage{ParentBy: record.ParentNone}, Status: record.StatusRunning,
		Raw: record.Raw{Partition: 1, First: 20, Next: 20, NextSeq: -1}, Open: &record.Open{Pending: true, Placed: true},
	}
	p := newPlaces()
	if err := p.wantRun(run); err != nil {
		t.Fatal(err)
	}
	p.seal()
	p.note(&kgo.Record{Key: []byte("acme/t"), Partition: 2, Offset: 7}, record.Position{Partition: 1, Offset: 20}, true)
	// A producer with another partitioner wrote it.
	p.note(&kgo.Record{Key: []byte("acme/t"), Partition: 3, Offset: 9}, record.Position{Partition: 0, Offset: 20}, false)
	if err := p.check(func(string) int64 { return 0 }); err != nil {
		t.Fatal(err)
	}
	value, err := p.run(run, 2)
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.DecodeRun(value)
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Raw; r.Partition != 2 || r.First != 7 || r.Next != 7 || len(r.Ranges) != 0 || !got.Open.Placed {
		t.Errorf("it became %+v, open %+v", r, got.Open)
	}
}

// A late error is found where it lies now, after the events of other runs.
func TestPlaces_OfALateError(t *testing.T) {
	run := &record.Run{
		Tenant: "acme", ThreadID: "t", RunID: "r", Lineage: record.Lineage{ParentBy: record.ParentNone}, Status: record.StatusError,
		Raw:       record.Raw{Partition: 1, First: 20, Next: 22, Ranges: [][2]int64{{20, 22}}, NextSeq: -1},
		LateError: &record.LateError{Offset: 30, Event: []byte(`{"type":"RUN_ERROR","message":"m"}`)},
	}
	p := newPlaces()
	if err := p.wantRun(run); err != nil {
		t.Fatal(err)
	}
	p.seal()
	for old, now := range map[int64]int64{20: 7, 21: 8, 30: 12} {
		p.note(&kgo.Record{Key: []byte("acme/t"), Partition: 2, Offset: now}, record.Position{Partition: 1, Offset: old}, true)
	}
	value, err := p.run(run, 2)
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.DecodeRun(value)
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Raw; r.First != 7 || r.Next != 9 || got.LateError.Offset != 12 {
		t.Errorf("it became %+v, with an error at %d", r, got.LateError.Offset)
	}
}
