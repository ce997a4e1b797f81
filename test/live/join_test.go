package live

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/conformance"
)

var joinsAll = flag.Bool("joins.all", false, "join each recorded run behind each of its events, not behind some")

const (
	// joinsSome is behind how many events of a run a client joins where -joins.all is not set.
	joinsSome = 2
	// joinsAtOnce is how many are under way at the same time.
	joinsAtOnce = 16
)

// A stock HttpAgent that joins a recorded run behind any of its events, be its record there or not, ends with what one
// holds that was there from the start.
func TestAttach_AStockClientJoinsRecordedRuns(t *testing.T) {
	client, ok := conformance.Live(t)
	if !ok {
		t.Skip("this compares what the official client gives with itself")
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for name, o := range map[string]options{
		"without records": {},
		"with records":    {checkpoint: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, kafkatest.Start(t, 4), o)
			points := 0
			for _, thread := range recordings.All() {
				for _, run := range thread.Runs {
					points += s.joinEach(client, thread, run, o.checkpoint > 0, random)
				}
			}
			t.Logf("joined behind %d events, seed %d", points, seed)
		})
	}
}

// joinEach joins a run behind its events, each time in a thread of its own, and returns behind how many.
func (s *site) joinEach(client *conformance.Client, thread recordings.Thread, run recordings.Run, recorded bool, random *rand.Rand) int {
	var events []string
	for _, line := range run.Lines() {
		events = append(events, string(line))
	}
	points := random.Perm(len(events) - 1)
	if !*joinsAll {
		points = points[:min(joinsSome, len(points))]
	}
	held := conformance.Start{Messages: member(run.Input, "messages"), State: member(run.Input, "state")}
	jobs := make([]conformance.Job, len(points)+1)
	jobs[0] = conformance.Job{Start: held, Events: raw(events), Upgrade: true, Strip: true}
	var under sync.WaitGroup
	slots := make(chan struct{}, joinsAtOnce)
	for i, n := range points {
		under.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			id := fmt.Sprintf("%s/%s/%s/%d", thread, run.RunID, s.t.Name(), n)
			s.input(id, run.RunID, string(run.Input))
			s.publish(id, run.RunID, events[:n+1]...)
			if recorded {
				s.status(id, run.RunID, "running")
			}
			r := s.attach(i%len(s.queries), runPath(id, run.RunID)+"/stream", "")
			var body strings.Builder
			joined := false
			for {
				f, ok := r.event()
				if !ok {
					break
				}
				fmt.Fprintf(&body, "data: %s\n\n", f.data)
				if f.id != "" && !joined {
					joined = true
					s.publish(id, run.RunID, events[n+1:]...)
				}
			}
			jobs[i+1] = conformance.Job{Answer: &conformance.Answer{Body: []byte(body.String())}}
		})
	}
	under.Wait()
	results, err := client.Reduce(jobs...)
	if err != nil {
		s.t.Fatal(err)
	}
	want := s.masked(thread, results[0].Conversation)
	for i, n := range points {
		if results[i+1].Rejected != "" && results[0].Error == nil && !strings.Contains(events[len(events)-1], "RUN_ERROR") {
			s.t.Errorf("%s %s behind event %d: the client says %s", thread, run.RunID, n, results[i+1].Rejected)
		}
		if d := conformance.Diff(want, s.masked(thread, results[i+1].Conversation)); d != "" {
			s.t.Errorf("%s %s behind event %d: %s\n%.2000s", thread, run.RunID, n, d, jobs[i+1].Answer.Body)
		}
	}
	return len(points)
}

func member(object json.RawMessage, name string) json.RawMessage {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		panic(err) // a recording
	}
	return members[name]
}

func raw(lines []string) []json.RawMessage {
	out := make([]json.RawMessage, len(lines))
	for i, l := range lines {
		out[i] = json.RawMessage(l)
	}
	return out
}

// masked leaves out ids that each client makes up by itself, of messages that come from older events.
func (s *site) masked(thread recordings.Thread, c conformance.Conversation) conformance.Conversation {
	c, err := conformance.Mask(thread, c)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}
