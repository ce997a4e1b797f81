package record_test

import (
	"math"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

// Who knows nothing of stream time reads what stands before it.
func TestDecided_WithStreamTime(t *testing.T) {
	for _, ms := range []int64{0, 1, 1788264000000} {
		metadata := record.AppendStreamTime(record.EncodeProcessed(7, 12), ms)
		offset, partitions, err := record.DecodeProcessed(metadata)
		if got := record.StreamTime(metadata); offset != 7 || partitions != 12 || err != nil || got != ms {
			t.Errorf("%q is %d, %d, %d, %v", metadata, offset, partitions, got, err)
		}
	}
	for _, odd := range []string{"", "skein1 p=7 n=12", "skein1 p=7 n=12 t=", "skein1 p=7 n=12 t=x"} {
		if got := record.StreamTime(odd); got != 0 {
			t.Errorf("%q has %d", odd, got)
		}
	}
}

func TestDecided_WithGap(t *testing.T) {
	for _, g := range []record.Gap{{}, {End: 7}, {End: math.MaxInt64, Until: 1788264000000}} {
		metadata := record.AppendGap(record.AppendStreamTime(record.EncodeProcessed(7, 12), 8), g)
		offset, partitions, err := record.DecodeProcessed(metadata)
		if got := record.GapOf(metadata); offset != 7 || partitions != 12 || err != nil || got != g || record.StreamTime(metadata) != 8 {
			t.Errorf("%q is %d, %d, %+v, %v", metadata, offset, partitions, got, err)
		}
	}
	for _, odd := range []string{"", "skein1 p=7 n=12 t=3", "skein1 p=7 n=12 g=", "skein1 p=7 n=12 g=7"} {
		if got := record.GapOf(odd); got != (record.Gap{}) {
			t.Errorf("%q has %+v", odd, got)
		}
	}
}
