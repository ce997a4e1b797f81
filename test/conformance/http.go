package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/client"
)

// indexPatience is how long the index may take to get to the last event that was published, on a
// machine that has other things to do.
const indexPatience = time.Minute

// HTTPOptions vary CheckHTTP.
type HTTPOptions struct {
	// HideParents takes parentRunId out of the inputs, as the official client has it; the
	// lineage must be the same, found by content.
	HideParents bool
}

// CheckHTTP publishes every recording to the Skein server at base, which must not know the
// recorded threads yet, and compares what the server then says with the official client: the
// history of each run of each thread, and the lineage. Events go in as NDJSON, SSE, JSON array and
// with sequence numbers, in turn.
func CheckHTTP(t *testing.T, base string, o HTTPOptions) {
	t.Helper()
	c, err := client.New(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)

	// All is published first: reading waits for the index then once, not after every run.
	threads := recordings.All()
	last := make(map[string]string, len(threads))
	n := 0
	for _, thread := range threads {
		for _, run := range thread.Runs {
			if last[thread.ThreadID], err = publish(t.Context(), c, run, n, o); err != nil {
				t.Fatalf("%s: %v", run.File, err)
			}
			n++
		}
	}
	for _, thread := range threads {
		t.Run(thread.String(), func(t *testing.T) {
			checkHistories(t, c, thread, last[thread.ThreadID])
			checkLineage(t, c, thread, o)
		})
	}
}

// publish sends a run, its events in the n-th form, and returns the position of the last event.
func publish(ctx context.Context, c *client.Client, run recordings.Run, n int, o HTTPOptions) (string, error) {
	input := []byte(run.Input)
	if o.HideParents {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(run.Input, &members); err != nil {
			return "", fmt.Errorf("decoding input: %w", err)
		}
		delete(members, "parentRunId")
		var err error
		if input, err = json.Marshal(members); err != nil {
			return "", fmt.Errorf("encoding input: %w", err)
		}
	}
	if _, err := c.PutInput(ctx, run.ThreadID, run.RunID, input); err != nil {
		return "", fmt.Errorf("publishing input: %w", err)
	}
	mediaType, body := form(run, n)
	ack, err := c.PostEvents(ctx, run.ThreadID, run.RunID, mediaType, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("publishing events as %s: %w", mediaType, err)
	}
	if want := int64(len(run.Lines())); ack.Accepted != want {
		return "", fmt.Errorf("publishing events as %s: %d accepted, want %d", mediaType, ack.Accepted, want)
	}
	return strconv.Itoa(int(ack.Partition)) + ":" + strconv.FormatInt(ack.LastOffset, 10), nil
}

// form is one of the four forms in which events can be published.
func form(run recordings.Run, n int) (mediaType string, body []byte) {
	lines := run.Lines()
	switch n % 4 {
	case 0:
		return client.TypeNDJSON, run.Events
	case 1:
		return client.TypeSSE, run.SSE()
	case 2:
		return "application/json", append(append([]byte("["), bytes.Join(lines, []byte(",\n"))...), ']')
	default:
		for i, line := range lines {
			body = fmt.Appendf(body, "{\"seq\":%d,\"event\":%s}\n", i, line)
		}
		return client.TypeSequenced, body
	}
}

func checkHistories(t *testing.T, c *client.Client, thread recordings.Thread, last string) {
	t.Helper()
	want, err := Expected(thread)
	if err != nil {
		t.Fatal(err)
	}
	for i, run := range thread.Runs {
		body, err := get(t.Context(), c, client.RunPath(thread.ThreadID, run.RunID)+"/history", last)
		if err != nil {
			t.Errorf("%s: reading history: %v", run.RunID, err)
			continue
		}
		var got Conversation
		if err := json.Unmarshal(body, &got); err != nil {
			t.Errorf("%s: decoding history: %v", run.RunID, err)
			continue
		}
		if got, err = Mask(thread, got); err != nil {
			t.Errorf("%s: %v", run.RunID, err)
		}
		if d := Diff(want[i].Conversation, got); d != "" {
			t.Errorf("%s: %s", run.RunID, d)
		}
	}
}

func checkLineage(t *testing.T, c *client.Client, thread recordings.Thread, o HTTPOptions) {
	t.Helper()
	body, err := get(t.Context(), c, client.ThreadPath(thread.ThreadID)+"/lineage", "")
	if err != nil {
		t.Fatalf("reading lineage: %v", err)
	}
	var got struct {
		Runs []struct {
			RunID, ParentRunID, ParentBy, BranchID string
		}
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("decoding lineage: %v", err)
	}
	if len(got.Runs) != len(thread.Runs) {
		t.Fatalf("lineage has %d runs, want %d", len(got.Runs), len(thread.Runs))
	}
	for i, want := range thread.Runs {
		by := "none"
		switch {
		case i > 0 && o.HideParents:
			by = "content"
		case i > 0:
			by = "explicit"
		}
		r := got.Runs[i]
		if r.RunID != want.RunID || r.ParentRunID != want.ParentRunID || r.ParentBy != by || r.BranchID != thread.Runs[0].RunID {
			t.Errorf("lineage: run %d is %+v, want run %q of parent %q by %q on the one branch", i, r, want.RunID, want.ParentRunID, by)
		}
	}
}

// get is Get without more parameters.
func get(ctx context.Context, c *client.Client, path, position string) ([]byte, error) {
	return Get(ctx, c, path, position, nil)
}

// Get reads once the index has got to a position; "" asks for no position.
func Get(ctx context.Context, c *client.Client, path, position string, more url.Values) ([]byte, error) {
	query := url.Values{}
	maps.Copy(query, more)
	if position != "" {
		query.Set("atLeast", position)
	}
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	for {
		body, err := c.Get(ctx, path, query)
		var answer *client.Error
		// The server has waited by itself before it says so.
		if errors.As(err, &answer) && answer.Status == http.StatusTooEarly {
			continue
		}
		return body, err
	}
}
