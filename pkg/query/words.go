package query

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

const (
	// maxWords is the maximum length of a question or an answer in a list, in characters.
	maxWords = 200
	// wordsBatch is how many runs' contents are in memory at a time.
	wordsBatch = 200
)

// words describes a run. Each field is one line.
type words struct {
	// Question is the beginning of the last user message that the run brought. Answer is the beginning of its first
	// assistant message with text.
	Question, Answer string
	// Resumed is the status of the first answer to an interrupt in the run's input: resolved or cancelled.
	Resumed string
	// Resolution summarises that answer: approved or declined if its payload's "approved" is true or false, cancelled, or
	// else the beginning of the payload.
	Resolution string
}

// wordsOf returns question, answer and resolution of each run. A run whose contents are not available yet has none.
func (c *call) wordsOf(runs []store.Run) (map[string]words, error) {
	out := make(map[string]words, len(runs))
	ctx, release := c.load.metered(c.R.Context())
	for batch := range slices.Chunk(runs, wordsBatch) {
		contents, err := c.store.Contents(ctx, c.Tenant, c.threadID, batch)
		if err != nil {
			return nil, err
		}
		for _, r := range batch {
			content := contents[r.RunID]
			if r.Status == record.StatusRunning {
				if content, err = c.openContents(ctx, r); errors.Is(err, errBehind) {
					continue
				} else if err != nil {
					return nil, err
				}
			}
			out[r.RunID] = newWords(r, content)
		}
		release()
	}
	return out, nil
}

func newWords(r store.Run, held store.Content) words {
	var w words
	for _, list := range [][]agui.Message{held.Messages, held.InputMessages} {
		for _, m := range list {
			if m.Role == agui.RoleUser {
				w.Question = beginning(m)
			}
		}
	}
	for _, m := range held.Messages {
		if m.Role == agui.RoleAssistant {
			if w.Answer = beginning(m); w.Answer != "" {
				break
			}
		}
	}
	if len(r.Resumes) > 0 {
		var resume struct {
			Status  string
			Payload json.RawMessage
		}
		// The answer is as the caller sent it. One of another form is ignored.
		_ = json.Unmarshal(r.Resumes[0], &resume)
		w.Resumed, w.Resolution = resume.Status, resolution(resume.Status, resume.Payload)
	}
	return w
}

// resolution returns in one line how a person answered an interrupt.
func resolution(status string, payload json.RawMessage) string {
	var got struct{ Approved *bool }
	var text string
	switch {
	case status != "resolved":
		return status
	case json.Unmarshal(payload, &got) == nil && got.Approved != nil && *got.Approved:
		return "approved"
	case got.Approved != nil:
		return "declined"
	case json.Unmarshal(payload, &text) == nil && text != "":
		return firstWords(text)
	case len(payload) > 0:
		return firstWords(string(payload))
	}
	return status
}

// beginning returns a message's first words. If the message has several parts, it uses the first one with text.
func beginning(m agui.Message) string {
	var got struct{ Content json.RawMessage }
	var parts []struct{ Text string }
	var text string
	// Contents that are neither text nor parts have no words.
	_ = json.Unmarshal(m.Raw, &got)
	if json.Unmarshal(got.Content, &text) != nil && json.Unmarshal(got.Content, &parts) == nil {
		for _, p := range parts {
			if text = p.Text; text != "" {
				break
			}
		}
	}
	return firstWords(text)
}

// firstWords returns text as one line of at most maxWords characters.
func firstWords(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if cut := []rune(text); len(cut) > maxWords {
		return string(cut[:maxWords]) + "…"
	}
	return text
}
