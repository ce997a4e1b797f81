package conformance

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/internal/recordings"
)

//go:embed testdata/expected
var expectedFiles embed.FS

// ExpectedRun is the checked-in result for one recorded run.
type ExpectedRun struct {
	RunID string `json:"runId"`
	Conversation
}

// Expected returns what the official client holds after each run of a recorded thread, as checked
// in. Ids that the client makes up at random are masked: see Mask.
func Expected(t recordings.Thread) ([]ExpectedRun, error) {
	b, err := expectedFiles.ReadFile("testdata/expected/" + t.String() + ".json")
	if err != nil {
		return nil, fmt.Errorf("reading expected results: %w", err)
	}
	var runs []ExpectedRun
	if err := json.Unmarshal(b, &runs); err != nil {
		return nil, fmt.Errorf("decoding expected results of %s: %w", t, err)
	}
	if len(runs) != len(t.Runs) {
		return nil, fmt.Errorf("reading expected results of %s: %d runs, want %d", t, len(runs), len(t.Runs))
	}
	return runs, nil
}

// LiveRuns has the running client fold every run of a recorded thread, each from its own input.
func LiveRuns(c *Client, t recordings.Thread) ([]ExpectedRun, error) {
	jobs := make([]Job, len(t.Runs))
	for i, run := range t.Runs {
		if err := json.Unmarshal(run.Input, &jobs[i].Start); err != nil {
			return nil, fmt.Errorf("decoding input of %s: %w", run.File, err)
		}
		jobs[i].Upgrade, jobs[i].Schema = true, true
		for _, line := range run.Lines() {
			jobs[i].Events = append(jobs[i].Events, line)
		}
	}
	results, err := c.Reduce(jobs...)
	if err != nil {
		return nil, err
	}
	runs := make([]ExpectedRun, len(results))
	for i, r := range results {
		if r.Error != nil {
			return nil, fmt.Errorf("%s: the client gave up at event %d: %s", t.Runs[i].File, r.Error.Index, r.Error.Message)
		}
		masked, err := Mask(t, r.Conversation)
		if err != nil {
			return nil, err
		}
		runs[i] = ExpectedRun{RunID: t.Runs[i].RunID, Conversation: masked}
	}
	return runs, nil
}

// Mask hides, in a conversation of the thread, the ids that the client makes up at random: those of
// messages that come from the retired THINKING_* events. Other threads' conversations stay as they are.
func Mask(t recordings.Thread, c Conversation) (Conversation, error) {
	for _, run := range t.Runs {
		if bytes.Contains(run.Events, []byte(`"THINKING_TEXT_MESSAGE_START"`)) {
			return MaskReasoning(c)
		}
	}
	return c, nil
}

// MaskReasoning replaces the ids of reasoning messages by their place in the conversation.
func MaskReasoning(c Conversation) (Conversation, error) {
	var messages []map[string]json.RawMessage
	if err := json.Unmarshal(c.Messages, &messages); err != nil {
		return c, fmt.Errorf("masking reasoning ids: %w", err)
	}
	for i, m := range messages {
		if string(m["role"]) == `"reasoning"` {
			m["id"] = json.RawMessage(fmt.Sprintf(`"reasoning %d"`, i))
		}
	}
	b, err := json.Marshal(messages)
	if err != nil {
		return c, fmt.Errorf("masking reasoning ids: %w", err)
	}
	return Conversation{Messages: b, State: c.State}, nil
}
