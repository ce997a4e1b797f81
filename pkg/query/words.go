package query

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

const (
	// maxWords is how many characters a question or an answer has in a list.
	maxWords = 200
	// wordsBatch is how many runs' contents are held at a time.
	wordsBatch = 200
)

// words say in one line each what a run is about.
type words struct {
	// Question is the beginning of the last message of a user that the run brought, Answer of its first answer with text.
	Question string `json:"question,omitempty"`
	Answer   string `json:"answer,omitempty"`
	// Resumed is the status of the first answer to an interrupt that the run's input brought: resolved or cancelled.
	Resumed string `json:"resumed,omitempty"`
	// Resolution says in a few words what that answer says: approved or declined where its payload's "approved" is true or false, cancelled,
	// or the beginning of the payload.
	Resolution string `json:"resolution,omitempty"`
}

// wordsOf reads what runs of a thread are about. A run whose contents are not there now has no words.
func (c *call) wordsOf(runs []store.Run) (map[string]words, error) {
	out := make(map[string]words, len(runs))
	for from := 0; from < len(runs); from += wordsBatch {
		batch := runs[from:min(from+wordsBatch, len(runs))]
		// A batch is let go of when its words are read, so it counts no longer than that.
		var held atomic.Int64
		contents, err := c.store.Contents(store.WithMeter(c.R.Context(), func(bytes int64) error {
			held.Add(bytes)
			return c.load.take(bytes)
		}), c.Tenant, c.threadID, batch)
		if err != nil {
			return nil, err
		}
		for _, r := range batch {
			content := contents[r.RunID]
			if r.Status == record.StatusRunning {
				if content, err = c.openContents(r); errors.Is(err, errBehind) {
					continue
				} else if err != nil {
					return nil, err
				}
			}
			out[r.RunID] = newWords(r, content)
		}
		_ = c.load.take(-held.Load()) // giving back never fails
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
		// It is as the caller sent it: what is of another form says nothing.
		_ = json.Unmarshal(r.Resumes[0], &resume)
		w.Resumed, w.Resolution = resume.Status, resolution(resume.Status, resume.Payload)
	}
	return w
}

// resolution says in one line how a person answered an interrupt.
func resolution(status string, payload json.RawMessage) string {
	var said struct{ Approved *bool }
	var text string
	switch {
	case status != "resolved":
		return status
	case json.Unmarshal(payload, &said) == nil && said.Approved != nil && *said.Approved:
		return "approved"
	case said.Approved != nil:
		return "declined"
	case json.Unmarshal(payload, &text) == nil && text != "":
		return firstWords(text)
	case len(payload) > 0:
		return firstWords(string(payload))
	}
	return status
}

// beginning returns a message's first words, of several parts those of the first with text.
func beginning(m agui.Message) string {
	var said struct{ Content json.RawMessage }
	var parts []struct{ Text string }
	var text string
	// Contents that are neither text nor parts have no words.
	_ = json.Unmarshal(m.Raw, &said)
	if json.Unmarshal(said.Content, &text) != nil && json.Unmarshal(said.Content, &parts) == nil {
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
