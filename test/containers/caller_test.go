package containers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/test/process"
)

// patience is how long a publish is tried again, and an answer is waited for.
const patience = 3 * time.Minute

// caller publishes and reads with the site's key. Calls may come from any goroutine.
type caller struct {
	t   *testing.T
	key string
	api *client.Client
	// refused counts requests that were sent again.
	refused atomic.Int64
}

// newCaller takes the key as the Compose file says.
func newCaller(s site) *caller {
	s.t.Helper()
	return callerWith(s, s.compose("run", "--rm", "--no-deps", "secrets", "cat", "/secrets/api-key"))
}

func callerWith(s site, key string) *caller {
	s.t.Helper()
	c := &caller{t: s.t, key: key}
	var err error
	c.api, err = client.New("http://127.0.0.1:8422", client.WithPublishURL("http://127.0.0.1:8420"), client.WithAPIKey(c.key))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.api.Close)
	return c
}

// again repeats a call until it succeeds. A refusal for good ends it at once; a new key is known within seconds.
func (c *caller) again(what string, call func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := call()
		var said *client.Error
		final := errors.As(err, &said) && said.Status/100 == 4 &&
			!slices.Contains([]int{http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests}, said.Status)
		switch {
		case err == nil:
			return nil
		case final, time.Now().After(deadline), c.t.Context().Err() != nil:
			return fmt.Errorf("%s: %w", what, err)
		}
		c.refused.Add(1)
		time.Sleep(100 * time.Millisecond)
	}
}

// published is a run that was acknowledged to its end.
type published struct {
	thread, run string
	parts       int
	position    string
}

// text is what its message says: each part is there once, in its place.
func (p published) text() string {
	var b strings.Builder
	for i := range p.parts {
		fmt.Fprintf(&b, "%d ", i)
	}
	return b.String()
}

// publish publishes a run whose message comes in parts, with ten events a request. Events have numbers, so that they can be sent again.
func (c *caller) publish(thread, run string, parts int) (published, error) {
	p := published{thread: thread, run: run, parts: parts}
	input := fmt.Sprintf(`{"threadId":%q,"runId":%q,"state":{},"messages":[{"id":"u-%s","role":"user","content":"count"}],`+
		`"tools":[],"context":[],"forwardedProps":{}}`, thread, run, run)
	err := c.again("sending the input of "+run, func() error {
		_, err := c.api.PutInput(c.t.Context(), thread, run, []byte(input))
		return err
	})
	if err != nil {
		return p, err
	}
	events := []string{fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run),
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"a-%s","role":"assistant"}`, run)}
	for i := range parts {
		events = append(events, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a-%s","delta":"%d "}`, run, i))
	}
	events = append(events, fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":"a-%s"}`, run),
		fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run))
	for first := 0; first < len(events); first += 10 {
		var body bytes.Buffer
		for i := first; i < min(first+10, len(events)); i++ {
			fmt.Fprintf(&body, "{\"seq\":%d,\"event\":%s}\n", i, events[i])
		}
		err := c.again("sending events of "+run, func() error {
			ack, err := c.api.PostEvents(c.t.Context(), thread, run, client.TypeSequenced, bytes.NewReader(body.Bytes()))
			p.position = fmt.Sprintf("%d:%d", ack.Partition, ack.LastOffset)
			return err
		})
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// read reads a run's history and counts, and says what is not as published.
func (c *caller) read(p published) error {
	var history struct {
		Status   string
		Messages []struct{ ID, Content string }
	}
	var run struct {
		Stats struct{ Events map[string]int }
	}
	err := c.again("reading "+p.run, func() error {
		body, err := c.api.Get(c.t.Context(), client.RunPath(p.thread, p.run)+"/history", url.Values{"atLeast": {p.position}})
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &history); err != nil {
			return err
		}
		if body, err = c.api.Get(c.t.Context(), client.RunPath(p.thread, p.run), nil); err != nil {
			return err
		}
		return json.Unmarshal(body, &run)
	})
	if err != nil {
		return err
	}
	said := ""
	if n := len(history.Messages); n > 0 && history.Messages[n-1].ID == "a-"+p.run {
		said = history.Messages[n-1].Content
	}
	if history.Status != "finished" || said != p.text() {
		return fmt.Errorf("history of %s is not as published: %+v", p.run, history)
	}
	if got := run.Stats.Events["TEXT_MESSAGE_CONTENT"]; got != p.parts || run.Stats.Events["RUN_FINISHED"] != 1 {
		return fmt.Errorf("%s has %d parts, want %d; events %v", p.run, got, p.parts, run.Stats.Events)
	}
	return nil
}

// mustPublish publishes a run and reads it.
func (c *caller) mustPublish(thread, run string) published {
	c.t.Helper()
	p, err := c.publish(thread, run, 20)
	if err == nil {
		err = c.read(p)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// mustRead reads runs that were published before.
func (c *caller) mustRead(all ...published) {
	c.t.Helper()
	for _, p := range all {
		if err := c.read(p); err != nil {
			c.t.Fatal(err)
		}
	}
}

// mustNotFind sees that a run is not there for this caller.
func (c *caller) mustNotFind(p published) {
	c.t.Helper()
	var said *client.Error
	if _, err := c.api.Get(c.t.Context(), client.RunPath(p.thread, p.run), nil); !errors.As(err, &said) || said.Status != http.StatusNotFound {
		c.t.Errorf("reading %s: %v, want status 404", p.run, err)
	}
}

// load publishes one run after another in each of some threads.
type load struct {
	mu   sync.Mutex
	all  []published
	wg   sync.WaitGroup
	stop chan struct{}
	once sync.Once
}

// load ends with the test, if not before.
func (c *caller) load(threads int) *load {
	l := &load{stop: make(chan struct{})}
	c.t.Cleanup(func() { l.end() })
	for i := range threads {
		thread := "load-" + strconv.Itoa(i)
		l.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				p, err := c.publish(thread, fmt.Sprintf("%s-%d", thread, n), 100)
				if err != nil {
					c.t.Error(err)
					return
				}
				l.mu.Lock()
				l.all = append(l.all, p)
				l.mu.Unlock()
			}
		})
	}
	return l
}

// await waits until some more runs are published.
func (l *load) await(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.all)
	}
	began := count()
	process.EventuallyWithin(t, patience, "more runs to be published", func() (int, bool) { return 0, count() >= began+more })
}

// end returns all that was published, once no more is.
func (l *load) end() []published {
	l.once.Do(func() { close(l.stop) })
	l.wg.Wait()
	return l.all
}
