package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// EncodeRun returns a run record as JSON. Equal records give equal bytes, in every process: map keys are sorted, times
// are in UTC, required lists and maps are never null. JSON that the record carries (messages, events, state) keeps its
// members, their order and the text of its numbers; white space between its tokens is dropped.
//
// A time that RFC 3339 cannot express (agents send year 50000) is written as the nearest time that RFC 3339 can.
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
	contents := setAside(&c)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	// Escaping <, > and & would change text whose hash the record has.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&c); err != nil {
		return nil, fmt.Errorf("encoding run record: %w", err)
	}
	return putBack(bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), contents), nil
}

// mark stands for JSON that was set aside. No number of a record is written so.
const mark = "-0"

// setAside replaces the JSON that a record carries by marks, as it is most of a record's bytes, and encoding/json would check them
// again. It returns the values in the order of the marks; elements of one list have one mark.
func setAside(c *Run) (contents [][]json.RawMessage) {
	list := func(v *[]json.RawMessage) {
		if len(*v) > 0 {
			contents, *v = append(contents, *v), []json.RawMessage{json.RawMessage(mark)}
		}
	}
	one := func(v *json.RawMessage) {
		if len(*v) > 0 {
			contents, *v = append(contents, []json.RawMessage{*v}), json.RawMessage(mark)
		}
	}
	messages := func(v *[]agui.Message) {
		all := make([]json.RawMessage, 0, len(*v))
		for _, m := range *v {
			all = append(all, m.Raw)
		}
		if list(&all); len(all) > 0 {
			*v = []agui.Message{{Raw: all[0]}}
		}
	}
	one(&c.Started)
	one(&c.Input)
	messages(&c.InputMessages)
	messages(&c.Messages)
	one(&c.State)
	list(&c.Events)
	one(&c.Terminal)
	if c.LateError != nil {
		late := *c.LateError
		c.LateError = &late
		one(&late.Event)
		list(&late.Interrupts)
	}
	list(&c.Interrupts)
	list(&c.Resumes)
	if c.Open != nil {
		one(&c.Open.Fold)
	}
	return contents
}

// putBack replaces the marks by the values that were set aside, without white space.
func putBack(b []byte, contents [][]json.RawMessage) []byte {
	size := len(b)
	for _, values := range contents {
		for _, v := range values {
			size += len(v) + 1
		}
	}
	out, from := make([]byte, 0, size), 0
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '"':
			i = stringEnd(b, i)
		case b[i] == mark[0] && b[i+1] == mark[1]:
			out = append(out, b[from:i]...)
			for k, v := range contents[0] {
				if k > 0 {
					out = append(out, ',')
				}
				if v == nil {
					v = json.RawMessage("null")
				}
				out = append(out, Compacted(v)...)
			}
			i++
			contents, from = contents[1:], i+1
		}
	}
	return append(out, b[from:]...)
}

// DecodeRun reads a run record of this Version, which the record's header names. It ignores members that it does not
// know: they may be added without a new version. The result shares no memory with b.
func DecodeRun(b []byte) (*Run, error) {
	r := new(Run)
	if err := r.decode(b); err != nil {
		return nil, fmt.Errorf("decoding run record: %w", err)
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

// maxDepth is the nesting depth up to which encoding/json reads.
const maxDepth = 10_000

// decode itself copies the messages and the checkpoint, which are most of a large record, and leaves the rest to
// encoding/json, which scans its input three times before it copies it.
func (r *Run) decode(b []byte) error {
	if err := agui.CheckDepth(b, maxDepth); err != nil {
		return err
	}
	rest, fold := []byte{'{'}, json.RawMessage(nil)
	for name, value := range agui.Members(b) {
		switch {
		case name == "messages" && value[0] == '[':
			if err := decodeMessages(&r.Messages, value); err != nil {
				return err
			}
		case name == "inputMessages" && value[0] == '[':
			if err := decodeMessages(&r.InputMessages, value); err != nil {
				return err
			}
		case name == "open" && value[0] == '{':
			open := []byte{'{'}
			for name, value := range agui.Members(value) {
				if name == "fold" {
					fold = bytes.Clone(value)
				} else {
					open = appendMember(open, name, value)
				}
			}
			rest = appendMember(rest, name, append(open, '}'))
		default:
			rest = appendMember(rest, name, value)
		}
	}
	if err := json.Unmarshal(append(rest, '}'), r); err != nil {
		return err
	}
	if r.Open != nil {
		r.Open.Fold = fold
	}
	return nil
}

func decodeMessages(to *[]agui.Message, list json.RawMessage) error {
	*to = []agui.Message{}
	for raw := range agui.Elements(list) {
		var m agui.Message
		if err := m.UnmarshalJSON(raw); err != nil {
			return err
		}
		*to = append(*to, m)
	}
	return nil
}

func appendMember(object []byte, name string, value json.RawMessage) []byte {
	if len(object) > 1 {
		object = append(object, ',')
	}
	return append(append(agui.AppendString(object, name), ':'), value...)
}

var (
	firstTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)
)

func writable(t time.Time) time.Time { return ClampTime(t, firstTime, lastTime) }

// ClampTime returns the time between first and last that is nearest to t, in UTC.
func ClampTime(t, first, last time.Time) time.Time {
	switch t = t.UTC(); {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t
}
