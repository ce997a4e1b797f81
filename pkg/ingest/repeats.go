package ingest

import (
	"hash/maphash"
	"sync"

	"github.com/skeinhq/skein/pkg/agui"
)

// repeats counts events of a request whose numbers their run had before, so that Skein drops them: those with the same bytes, and the
// others. A RUN_STARTED is compared as the compactor does it, without white space and its input.
type repeats struct {
	Repeated  int64 `json:"repeated,omitempty"`
	Different int64 `json:"different,omitempty"`
}

// These bound sentRuns to some 16 MiB.
const (
	mostSums    = 1 << 20 // of all runs
	mostRunSums = 1 << 16
	sumsOfRun   = 32 // what a run itself counts for
)

// sentRuns remembers hashes of the numbered events that Kafka has acknowledged to this process lately. A caller that sends events again is
// told whether they differ. The runs of which nothing was sent for the longest time are forgotten, half of all at once.
type sentRuns struct {
	seed maphash.Seed

	mu         sync.Mutex
	runs, past map[runKey]*sentRun // past: not sent since runs was full
	size       int                 // hashes of runs, as far as they were there when their requests ended
}

func newSentRuns() *sentRuns {
	return &sentRuns{seed: maphash.MakeSeed(), runs: map[runKey]*sentRun{}}
}

// of returns what is remembered of a run.
func (s *sentRuns) of(key runKey) *sentRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.runs[key]
	if run == nil {
		if run = s.past[key]; run == nil {
			run = new(sentRun)
		}
		run.mu.Lock()
		s.grow(sumsOfRun + len(run.sums))
		run.mu.Unlock()
		s.runs[key] = run
	}
	return run
}

// grow adds to the size. The caller must hold the lock.
func (s *sentRuns) grow(n int) {
	if s.size += n; s.size > mostSums/2 {
		s.past, s.runs, s.size = s.runs, map[runKey]*sentRun{}, n
	}
}

// grown counts the hashes that a request has added.
func (s *sentRuns) grown(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grow(n)
}

// forget forgets the runs of a thread, which was erased, or of all if thread is empty.
func (s *sentRuns) forget(thread string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, runs := range []map[runKey]*sentRun{s.runs, s.past} {
		for key := range runs {
			if thread == "" || key.thread == thread {
				delete(runs, key)
			}
		}
	}
}

// sentRun has hashes of the events of a run, by number.
type sentRun struct {
	mu    sync.Mutex
	first int64
	sums  []uint64 // of the numbers from first on; 0 for one that was left out
	ended bool
	input uint64 // the hash of its input; 0 for none or unknown
}

// sendInput forgets the events unless they may have had the same input: the next RUN_STARTED may begin another run, even if it repeats one.
func (r *sentRun) sendInput(sum uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.input != sum {
		r.input, r.first, r.sums, r.ended = sum, 0, nil, false
	}
}

// take compares an event with the earlier one of its number, or remembers it. Like the compactor, it takes another RUN_STARTED after the
// run's end for the start of another run.
func (r *sentRun) take(seq int64, t agui.Type, sum uint64) (of repeats, added int) {
	sum |= 1
	r.mu.Lock()
	defer r.mu.Unlock()
	at := seq - r.first
	switch n := int64(len(r.sums)); {
	case n > 0 && at < 0: // not remembered
		return repeats{}, 0
	case at < n && (at > 0 || !r.ended || t != agui.RunStarted || r.sums[at] == sum):
		if r.sums[at] == sum {
			return repeats{Repeated: 1}, 0
		}
		return repeats{Different: 1}, 0
	case n == 0 || at < n || at >= mostRunSums:
		if n > 0 {
			r.input = 0
		}
		r.first, r.sums, r.ended, at = seq, nil, false, 0
	}
	before := len(r.sums)
	r.sums = append(append(r.sums, make([]uint64, at-int64(before))...), sum)
	r.ended = r.ended || t.Terminal()
	return repeats{}, len(r.sums) - before
}
