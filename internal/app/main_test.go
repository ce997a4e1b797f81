package app

import (
	"math"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHeapLimit_LeavesRoomForWhatGoDoesNotCount(t *testing.T) {
	if got := heapLimit(1000 << 20); got != 850<<20 {
		t.Errorf("of 1000 MiB %d bytes are for the heap", got)
	}
	if got := heapLimit(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("without a limit there is one of %d bytes", got)
	}
}
