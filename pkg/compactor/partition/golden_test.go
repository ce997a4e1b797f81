package partition

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/record"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden_RecordsAreTheSameBytes holds every record that one partition writes to what it wrote before: topic, key, headers,
// and a hash of the value, in their order. Of snapshots and progress it holds the last one of each key, as when they are written depends
// on the clock. What only moves or renames code changes none of them.
func TestGolden_RecordsAreTheSameBytes(t *testing.T) {
	t.Run("recordings", func(t *testing.T) {
		var out bytes.Buffer
		for _, thread := range recordings.All() {
			s := newSim(t, nil)
			for _, run := range thread.Runs {
				s.Input(run.ThreadID, run.RunID, string(run.Input))
				for n, event := range run.Lines() {
					s.Send(run.ThreadID, run.RunID, string(event), seq(n))
				}
			}
			fmt.Fprintf(&out, "# %s\n", thread)
			golden(s, func() int { return 7 }, &out)
		}
		compareGolden(t, "recordings.txt", out.Bytes())
	})
	// Of a history its records' hash: there are many of them.
	t.Run("histories", func(t *testing.T) {
		var out bytes.Buffer
		for seed := range uint64(200) {
			rng := rand.New(rand.NewPCG(seed, 2))
			s := newSim(t, func(c *Config) { c.OpenRunBytes = rng.IntN(2) << 20 })
			partitiontest.Random(s.Script, rng, 40+rng.IntN(200), true)
			var records bytes.Buffer
			golden(s, func() int { return 1 + rng.IntN(30) }, &records)
			fmt.Fprintf(&out, "%d: %d records, %x\n", seed, bytes.Count(records.Bytes(), []byte{'\n'}), sum(records.Bytes()))
		}
		compareGolden(t, "histories.txt", out.Bytes())
	})
}

// golden folds the log in batches, with checkpoints, and writes a line for each record.
func golden(s *sim, batch func() int, out *bytes.Buffer) {
	s.tb.Helper()
	s.open(false)
	for n := 0; s.read < len(s.Events); n++ {
		s.feed(batch())
		if n%3 == 0 {
			s.Now = s.Now.Add(s.cfg.CheckpointInterval)
		}
		s.commit(true)
	}
	s.finish()
	s.Now = s.Now.Add(s.cfg.IdleLimit + time.Second) // what is open is given up
	s.commit(true)
	var records []*kgo.Record
	last := map[string]*kgo.Record{}
	for _, m := range append(s.runs, s.other...) {
		if partitiontest.IsDetail(m) { // the tombstones of each erasure
			continue
		}
		if m.Topic == s.Topics.Snapshots || string(m.Key) == record.ProgressKey {
			last[string(m.Key)] = m
		} else {
			records = append(records, m)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		records = append(records, last[key])
	}
	for _, m := range records {
		fmt.Fprintf(out, "%s %s", m.Topic, m.Key)
		for _, h := range m.Headers {
			fmt.Fprintf(out, " %s=%q", h.Key, h.Value)
		}
		fmt.Fprintf(out, " %d bytes %x\n", len(m.Value), sum(m.Value))
	}
}

func sum(b []byte) []byte {
	h := sha256.Sum256(b)
	return h[:8]
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	a, b := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d, is\n%s\nwant\n%s", file, i+1, a[i], b[i])
		}
	}
	t.Fatalf("%s has %d lines, want %d", file, len(a), len(b))
}
