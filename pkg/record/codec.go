package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// EncodeRun writes a run record. Equal records give equal bytes, in every process and on every day:
// names of maps are sorted, times are in UTC, lists and maps that must be there are never null. JSON
// that the record carries (messages, events, state) keeps its members, their order and the text of
// its numbers; white space between its tokens goes.
//
// A time that RFC 3339 cannot say (agents do send year 50000) is written as the nearest that it can.
func EncodeRun(r *Run) ([]byte, error) {
	c := *r
	c.StartedAt = writable(c.StartedAt)
	if c.EndedAt != nil {
		t := writable(*c.EndedAt)
		c.EndedAt = &t
	}
	if c.Raw.Ranges == nil {
		c.Raw.Ranges = [][2]int64{}
	}
	if c.Stats.Events == nil {
		c.Stats.Events = map[string]int64{}
	}
	if c.Stats.EventBytes == nil {
		c.Stats.EventBytes = map[string]int64{}
	}
	if c.Open != nil {
		o := *c.Open
		o.LastAt = writable(o.LastAt)
		c.Open = &o
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	// Escaping <, > and & would change the text that the record proves.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&c); err != nil {
		return nil, fmt.Errorf("encoding run record: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// DecodeRun reads a run record of this Version, which the record's header names. Members that it
// does not know are passed over: they may be added without a new version. The result shares nothing
// with b.
func DecodeRun(b []byte) (*Run, error) {
	r := new(Run)
	if len(b) < largeRecord || !r.decodeLarge(b) {
		*r = Run{}
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("decoding run record: %w", err)
		}
	}
	for _, id := range []string{r.Tenant, r.ThreadID, r.RunID} {
		if id == "" {
			return nil, fmt.Errorf("decoding run record: tenant, threadId or runId is missing")
		}
	}
	switch r.Status {
	case StatusRunning, StatusFinished, StatusError, StatusInterrupted, StatusCancelled, StatusAbandoned:
	default:
		return nil, fmt.Errorf("decoding run record: %q is not a status", r.Status)
	}
	switch r.ParentBy {
	case ParentExplicit, ParentContent, ParentLatest, ParentNone:
	default:
		return nil, fmt.Errorf("decoding run record: %q is not a way to find a parent", r.ParentBy)
	}
	return r, nil
}

// largeRecord is the size from which decodeLarge is worth it.
const largeRecord = 64 << 10

// decodeLarge is json.Unmarshal, some four times faster: encoding/json reads all of a record three times before it has copied the messages
// and the checkpoint, which are most of a large one. It returns false where it cannot tell that the result is the same.
func (r *Run) decodeLarge(b []byte) bool {
	if agui.CheckDepth(b, agui.MaxInputDepth) != nil {
		return false
	}
	rest := []byte{'{'}
	add := func(name string, value json.RawMessage) {
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(agui.AppendString(rest, name), ':'), value...)
	}
	var fold json.RawMessage
	for name, value := range agui.Members(b) {
		switch name {
		case "messages", "inputMessages":
			to := &r.Messages
			if name == "inputMessages" {
				to = &r.InputMessages
			}
			if value[0] != '[' {
				return false
			}
			*to = []agui.Message{}
			for raw := range agui.Elements(value) {
				var m agui.Message
				if m.UnmarshalJSON(raw) != nil {
					return false
				}
				*to = append(*to, m)
			}
		case "open":
			if value[0] != '{' {
				return false
			}
			outer := rest
			rest = []byte{'{'}
			for name, value := range agui.Members(value) {
				if name == "fold" {
					fold = bytes.Clone(value)
					continue
				}
				add(name, value)
			}
			open := append(rest, '}')
			rest = outer
			add(name, open)
		default:
			if strings.EqualFold(name, "messages") || strings.EqualFold(name, "inputMessages") || strings.EqualFold(name, "open") {
				return false // encoding/json takes it for that member
			}
			add(name, value)
		}
	}
	if json.Unmarshal(append(rest, '}'), r) != nil {
		return false
	}
	if r.Open != nil {
		r.Open.Fold = fold
	}
	return true
}

var (
	firstTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)
)

func writable(t time.Time) time.Time {
	switch t = t.UTC(); {
	case t.Before(firstTime):
		return firstTime
	case t.After(lastTime):
		return lastTime
	}
	return t
}
