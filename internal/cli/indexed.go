package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	// indexedWithin bounds the wait for the index.
	indexedWithin = 10 * time.Second
	// indexedAgain is the pause between two requests. The server also waits for the index before it answers.
	indexedAgain = 50 * time.Millisecond
)

// awaitIndexed waits until the last published event can be read. It prints a note if the event cannot be read yet. The
// events are published in either case.
//
// terminal means that the last event ends the run.
func awaitIndexed(ctx context.Context, out *output, c *client.Client, p published, terminal bool, within time.Duration) {
	position, run := fmt.Sprintf("%d:%d", p.Partition, p.LastOffset), oneLine(p.RunID, 80)
	waiting, stop := context.WithTimeout(ctx, within)
	defer stop()
	for {
		status, indexed, holds, err := indexedTo(waiting, c, p, position)
		known := status != ""
		open := status == record.StatusRunning || status == record.StatusAbandoned
		switch {
		case ctx.Err() != nil:
			out.note("the events are published; interrupted before the index had them")
			return
		case errors.Is(err, context.DeadlineExceeded):
			out.note("the events are published, but the index did not reach %s within %v: history does not show them yet", position, within)
			return
		case err != nil:
			out.note("the events are published, but it is unknown whether the index has them: %v", err)
			return
		case holds && (!terminal || !open):
			return
		case known && !open && indexed:
			out.note("run %s had ended before: repeated events are dropped; a new RUN_STARTED begins a run of its own", run)
			return
		case indexed || open && !terminal:
			out.note("run %s is open, and its last event was dropped or is not indexed yet", run)
			return
		}
		_ = pause(waiting, indexedAgain) // the next request returns the error
	}
}

// indexedTo requests the run and lets the server wait until the index reaches a position. It returns the run's status ("" if
// the index lacks the run), whether the index has reached the position, and whether the run's record covers it.
func indexedTo(ctx context.Context, c *client.Client, p published, position string) (status record.Status, indexed, holds bool, err error) {
	body, err := c.Get(ctx, client.RunPath(p.ThreadID, p.RunID), url.Values{"atLeast": {position}})
	var behind *client.Error
	if errors.As(err, &behind) && behind.Status == http.StatusTooEarly {
		body = behind.Body
	} else if err != nil {
		return "", false, false, err
	}
	// If the index lacks the run, the body is a problem document, whose status is a number.
	var run struct {
		Status    any
		Raw       record.Raw
		LateError *record.LateError
	}
	if err := json.Unmarshal(body, &run); err != nil {
		return "", false, false, fmt.Errorf("decoding run: %w", err)
	}
	text, _ := run.Status.(string)
	holds = run.Raw.Next > p.LastOffset || run.LateError != nil && run.LateError.Offset >= p.LastOffset
	return record.Status(text), err == nil, holds, nil
}

// isTerminalEvent reports whether an event ends its run.
func isTerminalEvent(event []byte) bool {
	ev, _ := fold.Decode(event)
	return ev != nil && ev.Type.Terminal()
}
