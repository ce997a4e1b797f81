package partition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/record"
)

// TestGolden_VerifyAndRefoldSayTheSame holds what verify and refold say of records, spoilt or not, to what they said before: each
// verdict, member, offset and text.
func TestGolden_VerifyAndRefoldSayTheSame(t *testing.T) {
	var out bytes.Buffer
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := newSim(t, nil)
		switch seed % 3 {
		case 0:
			partitiontest.Random(s.Script, rng, 20+rng.IntN(80), true)
		case 1:
			interleaved(s, rng)
		default:
			interleaved(s, rng)
			s.cfg.RecordLimit = 1200 + rng.IntN(800) // records are cut
		}
		s.open(false)
		for s.read < len(s.Events) {
			s.feed(1 + rng.IntN(30))
			if rng.IntN(3) == 0 {
				s.Now = s.Now.Add(s.cfg.CheckpointInterval)
			}
			s.commit(true)
		}
		if rng.IntN(3) > 0 {
			s.finish()
		}
		var all bytes.Buffer
		threads := s.byThread()
		for _, thread := range slices.Sorted(maps.Keys(threads)) {
			fmt.Fprintf(&all, "## %d %s\n", seed, thread)
			s.golden(rng, threads[thread], &all)
			ids := slices.Sorted(maps.Keys(threads[thread]))
			for range 4 {
				records := s.byThread()[thread]
				id := ids[rng.IntN(len(ids))]
				if len(records[id].Raw.Ranges) == 0 {
					continue
				}
				switch name := spoil(rng, records[id], ids); rng.IntN(8) {
				case 0:
					records[id].RawLost = true
				case 1:
					records[id].FoldVersion--
				case 2:
					records[id].Closed = records[id].Status == record.StatusAbandoned
				case 3:
					delete(records, id)
				default:
					fmt.Fprintf(&all, "# %s of %s\n", name, id)
				}
				if len(records) > 0 {
					s.golden(rng, records, &all)
				}
			}
		}
		if seed < 9 {
			out.Write(all.Bytes())
		} else {
			fmt.Fprintf(&out, "%d: %d lines, %x\n", seed, bytes.Count(all.Bytes(), []byte{'\n'}), sum(all.Bytes()))
		}
	}
	compareGolden(t, "verify.txt", out.Bytes())
}

// golden writes what verify says of all runs of a thread and of one, and refold of the thread, from where the log begins.
func (s *sim) golden(rng *rand.Rand, records hasRecord, out *bytes.Buffer) {
	s.tb.Helper()
	start := 0
	if rng.IntN(4) == 0 {
		start = rng.IntN(len(s.Events))
	}
	ids := slices.Sorted(maps.Keys(records))
	for _, wanted := range [][]string{nil, {ids[rng.IntN(len(ids))]}} {
		proofs, err := records.verifyFrom(start, s.Events, wanted, wanted != nil)
		if err != nil {
			fmt.Fprintf(out, "verify: error: %v\n", err)
		}
		for _, p := range proofs {
			fmt.Fprintf(out, "%s %s %q %d %v %d %q", p.RunID, p.Verdict, p.Reason, p.Earliest, p.Differences, p.From, p.Unproved)
			if p.Raw != nil {
				fmt.Fprintf(out, " %d %.8s %.8s", p.Raw.Events, p.Raw.SHA256, p.Raw.InputSHA256)
			}
			fmt.Fprintln(out)
		}
	}
	results, err := records.changes(start, s.Events)
	if err != nil {
		fmt.Fprintf(out, "refold: error: %v\n", err)
	}
	for _, r := range results {
		text, err := json.Marshal(r)
		s.check(err)
		fmt.Fprintf(out, "%s\n", text)
	}
}
