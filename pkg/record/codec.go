package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
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
	if err := json.Unmarshal(b, r); err != nil {
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
