package live

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
)

var cuts = flag.Int("cuts", 60, "how many times streams are cut at random points")

// cutThreads is how many threads are followed at the same time.
const cutThreads = 6

// Streams of runs are cut at random points, inside an event too, and go on at one of two processes with the last id that they gave:
// while the run goes on, and when it is over. Nothing is missing, and nothing comes twice.
func TestAttach_CutAtRandomPoints(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, k kafka.Config) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		s := start(t, k, options{queries: 2, checkpoint: 50 * time.Millisecond, query: func(c *query.Config) { c.StreamHeartbeat = 20 * time.Millisecond }})
		var cut atomic.Int64
		for round := 0; int(cut.Load()) < *cuts; round++ {
			var under sync.WaitGroup
			for n := range cutThreads {
				random := rand.New(rand.NewPCG(seed, uint64(round*cutThreads+n)))
				thread := fmt.Sprintf("t-%d-%d", round, n)
				events := said(thread, "r", 20+random.IntN(80))
				publish, follow, late := random.Uint64(), random.Uint64(), random.Uint64()
				under.Go(func() { s.publishSlowly(thread, events, publish) })
				under.Go(func() { s.followCut(thread, events, follow, &cut) })
				if random.IntN(2) == 0 { // one more, which comes when it is over
					under.Go(func() {
						s.status(thread, "r", "finished")
						s.followCut(thread, events, late, &cut)
					})
				}
			}
			under.Wait()
			if t.Failed() {
				return
			}
		}
		t.Logf("%d cuts", cut.Load())
	})
}

// publishSlowly publishes a run piece by piece.
func (s *site) publishSlowly(thread string, events []string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for len(events) > 0 {
		n := min(len(events), 1+random.IntN(6))
		s.publish(thread, "r", events[:n]...)
		events = events[n:]
		time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
	}
}

// followCut follows a run from its first event on over streams that are cut.
func (s *site) followCut(thread string, events []string, seed uint64, cut *atomic.Int64) {
	random := rand.New(rand.NewPCG(seed, 2))
	var lastID string
	got := map[int64]string{} // by offset
	var joined int64 = -1
	for {
		r := s.try(random.IntN(2), runPath(thread, "r")+"/stream", lastID)
		if r.resp.StatusCode == http.StatusNoContent {
			r.close()
			break
		}
		if r.resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(r.resp.Body)
			s.t.Errorf("%s behind %q: %d %s", thread, lastID, r.resp.StatusCode, text)
			return
		}
		over := s.readCut(r, random, func(f frame) {
			at, err := strconv.ParseInt(f.id[strings.Index(f.id, ":")+1:], 10, 64)
			if err != nil {
				s.t.Errorf("id %q", f.id)
			}
			if _, twice := got[at]; twice {
				s.t.Errorf("%s: %s came twice", thread, f.id)
			}
			if joined < 0 {
				joined = at
			}
			got[at] = f.data
			lastID = f.id
		})
		r.close()
		if over {
			break
		}
		cut.Add(1)
	}
	// What came behind the first id is the end of the run, one event after another.
	var last int64 = -1
	n := 0
	for range got {
		next := int64(-1)
		for at := range got {
			if at > last && (next < 0 || at < next) {
				next = at
			}
		}
		last = next
		n++
		if want := events[len(events)-len(got)+n-1]; next != joined && got[next] != want {
			s.t.Errorf("%s: event %d is %s, want %s", thread, n, got[next], want)
			return
		}
	}
	if got[last] != events[len(events)-1] {
		s.t.Errorf("%s ends with %s", thread, got[last])
	}
}

// readCut reads a stream up to a random point, and reports whether it came to its end. All up to an event with an id belongs
// together.
func (s *site) readCut(r *reader, random *rand.Rand, take func(frame)) (over bool) {
	left := 1 + random.IntN(2500) // bytes
	if random.IntN(8) == 0 {
		left = 1 << 30
	}
	stop := time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond+time.Millisecond, r.cancel)
	defer stop.Stop()
	body := &reader{t: r.t, lines: bufio.NewReader(io.LimitReader(r.resp.Body, int64(left))), lossy: true}
	for {
		f, ok := body.next()
		if !ok {
			return false
		}
		if f.data == "" || f.id == "" {
			continue
		}
		take(f)
		if strings.Contains(f.data, `"RUN_FINISHED"`) {
			return true
		}
	}
}
