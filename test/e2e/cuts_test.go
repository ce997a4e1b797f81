package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/test/process"
)

// cutWords is the number of events with text in the run that is followed, minCuts how often its stream is cut at least, and maxCut how many bytes
// are read before at most, where the reads before got on.
const (
	cutWords = 120
	minCuts  = 20
	maxCut   = 500
)

// checkCuts follows a run over two query processes. Its stream is cut at random points, one of the processes is killed, and the reader resumes at
// either of them: it has every word of the run once.
func checkCuts(t *testing.T, p *pipeline, rng *rand.Rand) {
	t.Helper()
	const thread = "cut"
	queries := []*process.Process{p.query, p.startQuery()}
	var publishing sync.WaitGroup
	defer publishing.Wait()
	joined := make(chan struct{}) // closed where the reader has the first word: a run that is over by then would come in one piece
	publishing.Go(func() {
		for n := range cutWords + 4 {
			if n == 3 {
				select {
				case <-joined:
				case <-time.After(process.Patience):
				}
			}
			line := fmt.Sprintf(`{"seq":%d,"event":%s}`, n, cutEvent(thread, n))
			if _, err := p.ingestAPI[tenantA].PostEvents(t.Context(), thread, "r", client.TypeSequenced, strings.NewReader(line)); err != nil {
				t.Errorf("publishing event %d: %v", n, err)
				return
			}
			time.Sleep(5 * time.Millisecond) // so that the run goes on while it is followed
		}
	})
	r := cutReader{t: t, key: p.secrets[tenantA], path: client.RunPath(thread, "r") + "/stream", joined: sync.OnceFunc(func() { close(joined) })}
	cuts, most, deadline := 0, maxCut, time.Now().Add(process.Patience)
	for ; !r.over; cuts++ {
		if time.Now().After(deadline) || t.Failed() {
			t.Fatalf("after %d cuts the reader is behind %q with %q", cuts, r.lastID, r.text)
		}
		behind := r.lastID
		r.read(queries[rng.IntN(2)], 1+rng.IntN(most))
		if most = min(2*most, 1<<20); r.lastID != behind { // else what comes behind it may be longer
			most = maxCut
		}
		if cuts == minCuts/2 {
			queries[1].End(os.Kill)
			queries[1] = p.startQuery()
		}
	}
	var want strings.Builder
	for n := range cutWords {
		want.WriteString(strconv.Itoa(n) + " ")
	}
	if r.text != want.String() || cuts < minCuts {
		t.Errorf("after %d cuts, want at least %d, the reader has %q, want %q", cuts, minCuts, r.text, &want)
	}
	queries[1].Stop()
}

func cutEvent(thread string, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":"r"}`, thread)
	case 1:
		return `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`
	case cutWords + 2:
		return `{"type":"TEXT_MESSAGE_END","messageId":"m"}`
	case cutWords + 3:
		return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":"r"}`, thread)
	}
	return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"%d "}`, n-2)
}

// cutReader reads a live stream piece by piece.
type cutReader struct {
	t                       *testing.T
	key, path, lastID, text string
	over                    bool
	joined                  func() // is called with each event that has text
}

// read opens the stream at a process and reads so many bytes of its body.
func (r *cutReader) read(query *process.Process, bytes int) {
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+query.Said("listening", "address")+r.path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	if r.lastID != "" {
		req.Header.Set("Last-Event-ID", r.lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it is cut
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("behind %q: %s %s", r.lastID, resp.Status, text)
	}
	lines := bufio.NewReader(io.LimitReader(resp.Body, int64(bytes)))
	var id string
	var block []string // events without an id belong to the next one that has one
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			block = append(block, value)
		case line == "\n" && id != "":
			for _, event := range block {
				r.apply(event)
			}
			r.lastID, id, block = id, "", nil
		}
	}
}

func (r *cutReader) apply(event string) {
	var e struct {
		Type, Delta string
		Messages    []struct{ ID, Content string }
	}
	if err := json.Unmarshal([]byte(event), &e); err != nil {
		r.t.Fatal(err)
	}
	r.text += e.Delta
	for _, m := range e.Messages {
		r.text = m.Content
	}
	if r.text != "" {
		r.joined()
	}
	r.over = e.Type == "RUN_FINISHED"
}
