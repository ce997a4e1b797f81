package store

import (
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

// BenchmarkDecodeHead is most of what a lineage of many runs costs in this process.
func BenchmarkDecodeHead(b *testing.B) {
	end, took := time.Date(2026, 9, 17, 12, 0, 9, 0, time.UTC), int64(9000)
	text, _, err := EncodeRow(&record.Run{
		Lineage: record.Lineage{ParentRunID: "0c7bb6a2d27f4a7f9f4a6f5d1a2b3c4d", ParentBy: record.ParentContent,
			BranchID: "1c7bb6a2d27f4a7f9f4a6f5d1a2b3c4d", RootRunID: "2c7bb6a2d27f4a7f9f4a6f5d1a2b3c4d", Depth: 7},
		Status: record.StatusFinished, Agent: "agent-1", Base: "0c7bb6a2d27f4a7f9f4a6f5d1a2b3c4d", MessageCount: 16, Input: []byte("{}"),
		StartedAt: end.Add(-9 * time.Second), EndedAt: &end, Stats: record.Stats{Duration: &took},
		Raw: record.Raw{Partition: 3, First: 1_234_567, Next: 1_234_627, Events: 60, Ranges: [][2]int64{{1_234_567, 1_234_627}}},
	}, Facts{Asked: "0123456789abcdef", Question: "What is the weather like in Paris tomorrow?",
		Reply: "It is sunny, with some clouds towards the evening"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeHead(text); err != nil {
			b.Fatal(err)
		}
	}
}
