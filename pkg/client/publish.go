package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strings"

	"github.com/skeinhq/skein/pkg/eventstream"
)

// The media types of events that ingest accepts.
const (
	TypeNDJSON = "application/x-ndjson"
	TypeSSE    = "text/event-stream"
	// TypeSequenced wraps each event as {"seq": n, "event": …}, so that ingest's readers can drop a repeat.
	TypeSequenced = "application/vnd.skein.events+ndjson"
)

// Ack is ingest's answer after Kafka acknowledged all events.
type Ack struct {
	Accepted    int64 `json:"accepted"`
	Partition   int32 `json:"partition"`
	FirstOffset int64 `json:"firstOffset"`
	LastOffset  int64 `json:"lastOffset"`
	// Unreadable is how many of them no client can read.
	Unreadable int64 `json:"unreadable,omitempty"`
	// Repeated and Different are how many of them were dropped, as their run has events of their numbers: with the same bytes, or others.
	// Ingest knows only what it received lately.
	Repeated  int64 `json:"repeated,omitempty"`
	Different int64 `json:"different,omitempty"`
	// Warnings are about events that were accepted and that no client can read, or that count as anomalies of the run.
	Warnings []Warning `json:"warnings,omitempty"`
}

// Warning is about an event that cannot be folded, or an id in an event or input that contradicts the path of the request.
type Warning struct {
	// Line is the line of the body on which the event begins, from 1; 0 for an input.
	Line    int64  `json:"line,omitempty"`
	Anomaly string `json:"anomaly"`
	Detail  string `json:"detail"`
}

// InputAck is ingest's answer to an input. Position is the input's, "partition:offset".
type InputAck struct {
	Position string
	Warnings []Warning
}

// PutInput sends a run's RunAgentInput.
func (c *Client) PutInput(ctx context.Context, thread, run string, input []byte) (InputAck, error) {
	at, err := answer[struct {
		Partition int32     `json:"partition"`
		Offset    int64     `json:"offset"`
		Warnings  []Warning `json:"warnings"`
	}](c.call(ctx, http.MethodPut, RunPath(thread, run)+"/input", nil, typeJSON, bytes.NewReader(input)))
	if err != nil {
		return InputAck{}, err
	}
	return InputAck{fmt.Sprintf("%d:%d", at.Partition, at.Offset), at.Warnings}, nil
}

// PostEvents streams events in one of the Type… forms to ingest. If ingest refuses one of them, the error is an *Error
// with the number of events accepted before it.
func (c *Client) PostEvents(ctx context.Context, thread, run, mediaType string, events io.Reader) (Ack, error) {
	return answer[Ack](c.call(ctx, http.MethodPost, RunPath(thread, run)+"/events", nil, mediaType, events))
}

// Published counts the events of a run that Publish has sent.
type Published struct {
	// InputPosition is the input's position, "partition:offset"; "" if none was sent.
	InputPosition string
	// Ack counts the events that ingest has acknowledged. What Publish itself sent again is not among those Repeated. The Line of a warning
	// is the event's place in the run, from 1. There are at most 16 warnings.
	Ack
	// Next is the number in the run of the first event that was not acknowledged.
	Next int64
}

const (
	// batchBytes is when a batch gets no further event: an event may be larger, and is then sent alone.
	batchBytes = 1 << 20
	// mostWarnings is the limit of a single answer, too.
	mostWarnings = 16
)

// Publish sends a run: its RunAgentInput, unless that is nil, then its events as they come, each with its number in the run, from 0.
// Readers drop an event whose number the run has, so that calls are safely repeated, for as long as WithPatience says; and so is Publish:
// after an error, publish the same events again, or from Published.Next on, with nil in place of each event before.
//
// A nil event has a number, and is not sent. An error of events ends the run there, and is returned once the events before it are
// acknowledged. Events are sent in batches: the first at once, and those that come meanwhile together. If events is more than two batches
// ahead, it waits. Publish returns once events has ended, or with its next event after an error: let it end with ctx.
//
// If ingest refuses an event, the error is an *Error whose Line is the event's place in the run, from 1.
func (c *Client) Publish(ctx context.Context, thread, run string, input []byte, events iter.Seq2[[]byte, error]) (Published, error) {
	var sent Published
	if input != nil {
		put, err := again(ctx, &tries{client: c}, func() (InputAck, error) { return c.PutInput(ctx, thread, run, input) })
		if err != nil {
			return sent, fmt.Errorf("sending input: %w", err)
		}
		sent.InputPosition, sent.Warnings = put.Position, put.Warnings
	}
	waiting, ended := make(chan batch, 1), make(chan error, 1)
	go func() {
		for b := range waiting {
			if err := c.postBatch(ctx, thread, run, b, &sent); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	var b batch
	var broken, failed error
	number, open := int64(0), true
	for event, err := range events {
		if err != nil {
			broken = err
			break
		}
		if event != nil {
			full := len(b.body) >= batchBytes
			if b = (batch{}); !full {
				select { // take the batch back, unless it is on its way
				case b = <-waiting:
				default:
				}
			}
			b.add(number, event)
			select {
			case waiting <- b:
			case failed = <-ended:
				open = false
			}
			if !open {
				break
			}
		}
		number++
	}
	close(waiting)
	if open {
		failed = <-ended
	}
	if failed == nil {
		sent.Next, failed = number, broken
	}
	return sent, failed
}

// batch is the body of a request with numbered events.
type batch struct {
	body    []byte
	numbers []int64
}

func (b *batch) add(number int64, event []byte) {
	// A line feed would end the line. One in a string makes the event malformed, which a carriage return does, too.
	b.body = fmt.Appendf(b.body, `{"seq":%d,"event":%s}`+"\n", number, bytes.ReplaceAll(event, []byte("\n"), []byte("\r")))
	b.numbers = append(b.numbers, number)
}

// postBatch sends a batch, and counts it in sent.
func (c *Client) postBatch(ctx context.Context, thread, run string, b batch, sent *Published) error {
	place := func(line int64) int64 {
		if line < 1 || line > int64(len(b.numbers)) {
			return 0
		}
		return b.numbers[line-1] + 1
	}
	sent.Next = b.numbers[0]
	times := 0
	ack, err := again(ctx, &tries{client: c}, func() (Ack, error) {
		times++
		return c.PostEvents(ctx, thread, run, TypeSequenced, bytes.NewReader(b.body))
	})
	var refused *Error
	if errors.As(err, &refused) {
		detail := strings.TrimPrefix(refused.Detail, fmt.Sprintf("line %d: ", refused.Line))
		if refused.Line = place(refused.Line); refused.Line > 0 {
			refused.Detail = fmt.Sprintf("event %d: %s", refused.Line, detail)
		}
		if refused.Accepted > 0 && refused.Accepted < int64(len(b.numbers)) {
			sent.Next, ack = b.numbers[refused.Accepted], refused.Ack
		}
	}
	if err != nil {
		err = fmt.Errorf("sending events: %w", err)
	}
	if ack.Accepted <= 0 {
		return err
	}
	if times > 1 {
		ack.Repeated = 0
	}
	if sent.Accepted == 0 {
		sent.FirstOffset = ack.FirstOffset
	}
	sent.Partition, sent.LastOffset = ack.Partition, ack.LastOffset
	sent.Accepted += ack.Accepted
	sent.Unreadable += ack.Unreadable
	sent.Repeated += ack.Repeated
	sent.Different += ack.Different
	for _, w := range ack.Warnings {
		if w.Line = place(w.Line); len(sent.Warnings) < mostWarnings {
			sent.Warnings = append(sent.Warnings, w)
		}
	}
	return err
}

// Events reads events for Publish: an agent's answer (server-sent events), NDJSON or a JSON array.
func Events(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		events := eventstream.New(r, eventstream.Any, math.MaxInt/4, 64<<10, eventstream.Memory{})
		defer events.Close()
		for {
			event, err := events.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				err = fmt.Errorf("line %d: reading events: %w", events.Line(), err)
			}
			if !yield(event.Value, err) || err != nil {
				return
			}
		}
	}
}
