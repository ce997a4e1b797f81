package live

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/conformance"
)

var joinsAll = flag.Bool("joins.all", false, "join each recorded run behind each of its events, not behind some")

const (
	// joinsSome is behind how many events of a run a client joins where -joins.all is not set.
	joinsSome = 1
	// joinsAtOnce is how many are under way at the same time.
	joinsAtOnce = 16
)

// A stock HttpAgent that joins a recorded run behind any of its events, be its record there or not, ends with what one
// holds that was there from the start.
func TestAttach_AStockClientJoinsRecordedRuns(t *testing.T) {
	client := conformance.Need(t)
	seed := seedtest.New(t)
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
func (s *live) joinEach(client *conformance.Client, thread recordings.Thread, run recordings.Run, recorded bool, random *rand.Rand) int {
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
	jobs[0] = conformance.Job{Start: held, Events: conformance.Raw(events), Upgrade: true, Strip: true}
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
	results := client.Play(s.t, jobs...)
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

// masked leaves out ids that each client makes up by itself, of messages that come from older events.
func (s *live) masked(thread recordings.Thread, c conformance.Conversation) conformance.Conversation {
	c, err := conformance.Mask(thread, c)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// A stock client that follows a thread holds, at the end of each of its runs, that run's history: where the next run goes on
// from it, beside it, or from nothing.
func TestAttach_AStockClientFollowsAThread(t *testing.T) {
	client := conformance.Need(t)
	s := start(t, kafkatest.Start(t, 1), options{})
	user := func(id string) string { return fmt.Sprintf(`{"id":%q,"role":"user","content":"Question %s"}`, id, id) }
	answer := `{"id":"one-a","role":"assistant","content":"0 1 2 "}`
	r := s.attach(0, "/v1/threads/chat/stream", "")
	var got []string
	var jobs []conformance.Job
	var want []conformance.Conversation
	for _, run := range []struct{ id, messages string }{
		{"one", user("u1")},
		{"child", user("u1") + "," + answer + "," + user("u2")},
		{"sibling", user("u1") + "," + answer + "," + user("u3")},
		{"root", user("u4")},
	} {
		s.input("chat", run.id, fmt.Sprintf(`{"threadId":"chat","runId":%q,"state":{"asked":%q},"messages":[%s],"tools":[],"context":[],"forwardedProps":{}}`, run.id, run.id, run.messages))
		events := said("chat", run.id, 3)
		state := fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/said","value":%q}]}`, run.id)
		events = append(events[:4:4], append([]string{state}, events[4:]...)...)
		s.publish("chat", run.id, events[:3]...)
		for joined := false; ; {
			f, ok := r.event()
			if !ok {
				t.Fatalf("the stream is over in run %s", run.id)
			}
			got = append(got, f.data)
			if f.id != "" && !joined {
				joined = true
				s.publish("chat", run.id, events[3:]...)
			}
			if f.data == events[len(events)-1] {
				break
			}
		}
		s.status("chat", run.id, "finished")
		_, history := s.send(http.MethodGet, s.queries[0]+runPath("chat", run.id)+"/history", "", "")
		want = append(want, conformance.Conversation{Messages: member(json.RawMessage(history), "messages"),
			State: member(json.RawMessage(history), "state")})
		jobs = append(jobs, conformance.Job{Events: conformance.Raw(got), Upgrade: true, Verify: true})
	}
	results := client.Play(t, jobs...)
	for i, result := range results {
		if d := conformance.Diff(want[i], result.Conversation); d != "" || result.Violation != nil {
			t.Errorf("behind run %d: %s %v\n%s", i, d, result.Violation, strings.Join(got, "\n"))
		}
	}
}
