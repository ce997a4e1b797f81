package query

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// connect answers a RunAgentInput with the latest run of its thread, so that a stock client restores the thread and follows an open run to its end. Of
// the input it uses the ids only, and forwardedProps.skein.runId, which selects another run.
func (c *call) connect() error {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, kafka.MaxValueBytes))
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return &refusal{status: http.StatusRequestEntityTooLarge, detail: fmt.Sprintf("the input is larger than %d bytes", large.Limit)}
	}
	if err != nil {
		return badRequest("reading the input: " + err.Error())
	}
	in, err := agui.DecodeInput(body, "")
	if err != nil {
		return badRequest(err.Error())
	}
	runID := ""
	if named := agui.Lookup(agui.Lookup(agui.Lookup(in.Raw, "forwardedProps"), "skein"), "runId"); named != nil {
		if err := json.Unmarshal(named, &runID); err != nil {
			return badRequest("forwardedProps.skein.runId: " + err.Error())
		}
		if err := record.ValidateID(runID); err != nil {
			return badRequest("forwardedProps.skein.runId: " + err.Error())
		}
	}
	if err := record.ValidateID(in.ThreadID); err != nil {
		return badRequest("the input's threadId: " + err.Error())
	}
	c.threadID, c.runID = in.ThreadID, cmp.Or(in.RunID, in.ThreadID)
	return c.live(runID, joining(), true)
}

// empty answers for a thread without runs.
func (s *stream) empty() error {
	if s.runID != "" {
		return &refusal{status: http.StatusNotFound, detail: fmt.Sprintf("the thread has no run %q", s.runID)}
	}
	finished := agui.AppendString([]byte(`{"type":"RUN_FINISHED","threadId":`), s.threadID)
	finished = append(agui.AppendString(append(finished, `,"runId":`...), s.call.runID), '}')
	s.block(s.whole(s.call.runID, nil, nil, json.RawMessage(`{}`), finished, false), joining())
	return s.flush()
}
