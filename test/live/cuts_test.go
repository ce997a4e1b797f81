package live

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
)

var cuts = flag.Int("cuts", 30, "how many times streams are cut at random points")

// cutThreads is how many threads are followed at the same time.
const cutThreads = 6

// Streams of runs are cut at random points, inside an event too, and go on at one of two processes with the last id that they gave:
// while the run goes on, and when it is over. Nothing is missing, and nothing comes twice: what a join says so far and what comes then is
// the whole. Some follow the thread, and some go on with the numbers of events as a caller of the proxy does.
func TestAttach_CutAtRandomPoints(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, k kafka.Config) {
		seed := seedtest.New(t)
		s := start(t, k, options{queries: 2, checkpoint: 50 * time.Millisecond,
			query: func(c *query.Config) { c.StreamHeartbeat = 20 * time.Millisecond }})
		var cut atomic.Int64
		for round := 0; int(cut.Load()) < *cuts; round++ {
			var under sync.WaitGroup
			for n := range cutThreads {
				random := rand.New(rand.NewPCG(seed, uint64(round*cutThreads+n)))
				thread := fmt.Sprintf("t-%d-%d", round, n)
				events := said(thread, "r", 20+random.IntN(80))
				publish, follow, late := random.Uint64(), random.Uint64(), random.Uint64()
				how := []string{"", "thread", "seq"}[n%3]
				under.Go(func() { s.publishSlowly(thread, events, publish) })
				under.Go(func() { s.followCut(thread, how, events, follow, &cut) })
				if random.IntN(2) == 0 { // one more, which comes when it is over
					under.Go(func() {
						s.status(thread, "r", "finished")
						s.followCut(thread, how, events, late, &cut)
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
func (s *live) publishSlowly(thread string, events []string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for from := 0; from < len(events); {
		to := min(len(events), from+1+random.IntN(6))
		s.numbered(thread, "r", events, from, to)
		from = to
		time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
	}
}

// followCut follows a run over streams that are cut: its own, or the thread's; how "seq" goes on with the numbers of events.
func (s *live) followCut(thread, how string, events []string, seed uint64, cut *atomic.Int64) {
	random := rand.New(rand.NewPCG(seed, 2))
	path := runPath(thread, "r")
	if how == "thread" {
		path = "/v1/threads/" + thread
	}
	var lastID string
	var whole strings.Builder // what the message says
	at := -1                  // the index of the last event; -1 before the join
	for {
		r := s.try(random.IntN(2), path+"/stream", lastID)
		if r.resp.StatusCode == http.StatusNoContent {
			r.close()
			break
		}
		if r.resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(r.resp.Body)
			s.t.Errorf("%s behind %q: %d %s", thread, lastID, r.resp.StatusCode, text)
			return
		}
		over := s.readCut(r, random, func(id string, block []string) {
			last := block[len(block)-1]
			switch i := slices.Index(events, last); {
			case at < 0: // the join
				for _, data := range block {
					whole.WriteString(textOf(data, "r-a"))
				}
				switch {
				case strings.Contains(last, "TEXT_MESSAGE_START"): // which opens the message again, behind what it says already
					at = 1 + strings.Count(whole.String(), " ")
				case i < 0 && whole.Len() > 0: // the message is over, the run is not
					at = len(events) - 2
				default:
					at = max(i, 0)
				}
			case i != at+1 || len(block) > 1:
				s.t.Errorf("%s: behind event %d came %s", thread, at, block)
			default:
				at = i
				whole.WriteString(textOf(last, "r-a"))
			}
			if lastID = id; how == "seq" {
				lastID = fmt.Sprint("seq:", at)
			}
		})
		r.close()
		if over || s.t.Failed() {
			break
		}
		cut.Add(1)
	}
	var want strings.Builder
	for _, data := range events {
		want.WriteString(textOf(data, "r-a"))
	}
	if at != len(events)-1 || whole.String() != want.String() {
		s.t.Errorf("%s ends with event %d of %d, and says %q, want %q", thread, at, len(events), whole.String(), want.String())
	}
}

// textOf is what an event says of a message of its run.
func textOf(data, message string) string {
	var ev struct {
		Type, Delta string
		Messages    []struct{ ID, Content string }
	}
	if err := json.Unmarshal([]byte(data), &ev); err != nil {
		panic(err) // an event
	}
	for _, m := range ev.Messages {
		if m.ID == message {
			return m.Content
		}
	}
	return ev.Delta
}

// readCut reads a stream up to a random point, and reports whether it came to its end. All up to an event with an id belongs
// together.
func (s *live) readCut(r *reader, random *rand.Rand, take func(id string, block []string)) (over bool) {
	left := 1 + random.IntN(2500) // bytes
	if random.IntN(8) == 0 {
		left = 1 << 30
	}
	stop := time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond+time.Millisecond, r.cancel)
	defer stop.Stop()
	body := &reader{t: r.t, lines: bufio.NewReader(io.LimitReader(r.resp.Body, int64(left))), lossy: true}
	var block []string
	for {
		f, ok := body.next()
		if !ok {
			return false
		}
		if f.data == "" {
			continue
		}
		if block = append(block, f.data); f.id == "" {
			continue
		}
		take(f.id, block)
		block = nil
		if strings.Contains(f.data, `"RUN_FINISHED"`) {
			return true
		}
	}
}
