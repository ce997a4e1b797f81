package query

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// lightInput is the largest input, in bytes, that is decoded without a slot. It takes about a millisecond.
const lightInput = 256 << 10

// decodedInput is the approximate memory of an input while it is decoded, as a multiple of its length.
const decodedInput = 4

// connect answers a RunAgentInput with the latest run of its thread, so that a stock client restores the thread and
// follows an open run to its end. It uses only the ids of the input, and forwardedProps.skein.runId, which selects
// another run.
func (c *call) connect() error {
	in, err := c.readInput()
	if err != nil {
		return err
	}
	runID := ""
	if named := agui.Lookup(agui.Lookup(agui.Lookup(in.Raw, "forwardedProps"), "skein"), "runId"); named != nil {
		if err := json.Unmarshal(named, &runID); err != nil {
			return badRequest("forwardedProps.skein.runId: %v", err)
		}
		if err := record.ValidateID(runID); err != nil {
			return badRequest("forwardedProps.skein.runId: %v", err)
		}
	}
	if err := record.ValidateID(in.ThreadID); err != nil {
		return badRequest("the input's threadId: %v", err)
	}
	c.threadID, c.runID = in.ThreadID, cmp.Or(in.RunID, in.ThreadID)
	c.Audit.Thread, c.Audit.Run = c.threadID, c.runID
	return c.live(runID, joining(), true)
}

// readInput reads the request's body and takes memory for it from the tenant's share. Reading the whole body may take
// front.Stall at most.
func (c *call) readInput() (*agui.RunAgentInput, error) {
	held := int64(kafka.MaxValueBytes)
	if n := c.R.ContentLength; n >= 0 {
		held = min(n, held)
	}
	if err := c.load.hold(decodedInput * held); err != nil {
		return nil, err
	}
	defer func() { _ = c.load.hold(-decodedInput * held) }() // a release never fails
	rc := http.NewResponseController(c.W)
	if err := rc.SetReadDeadline(time.Now().Add(c.front.Stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("bounding the time of a body: %w", err)
	}
	var read bytes.Buffer
	if c.R.ContentLength >= 0 { // growing step by step would leave several times its size as garbage
		read.Grow(int(held) + bytes.MinRead)
	}
	_, err := read.ReadFrom(http.MaxBytesReader(c.W, c.R.Body, kafka.MaxValueBytes))
	body := read.Bytes()
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return nil, &front.Problem{Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("the input is larger than %d bytes", large.Limit)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, badRequest("reading the input: it was not there within %v", c.front.Stall)
	}
	if err != nil {
		return nil, badRequest("reading the input: %v", err)
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("ending the bound of a body: %w", err)
	}
	if len(body) > lightInput {
		if err := c.load.acquire(c.R.Context()); err != nil {
			return nil, err
		}
		defer c.load.releaseSlot()
	}
	in, err := agui.DecodeInput(body, "")
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return in, nil
}

// empty answers for a thread without runs: with an empty history, with 410 if the thread was erased, or with 404 if a run was requested.
func (s *stream) empty() error {
	if s.erasedAt > 0 { // the index may not know it yet
		return s.refuseErased(s.Call)
	}
	if err := s.checkErased(s.Call, -1); err != nil {
		return err
	}
	if s.runID != "" {
		return store.ErrNotFound
	}
	finished := agui.AppendString([]byte(`{"type":"RUN_FINISHED","threadId":`), s.threadID)
	finished = append(agui.AppendString(append(finished, `,"runId":`...), s.call.runID), '}')
	s.block(wholeRun(s.threadID, s.call.runID, nil, nil, json.RawMessage(`{}`), finished, false), joining())
	return s.flush()
}
