package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// eventReader reads events one by one out of NDJSON, SSE or a JSON array. Which of them it is shows in
// the first line that is not empty: an event starts with a brace, an array with a bracket, an SSE
// field with its name.
type eventReader struct {
	r *bufio.Reader
	// line is the line of the last event, from 1; in an array, its place.
	line int
	// form is decided with the first line.
	form  eventForm
	array *json.Decoder
	// strict refuses a line of SSE that is no field, where other readers pass over it.
	strict bool
}

type eventForm int

const (
	formUnknown eventForm = iota
	formNDJSON
	formSSE
	formArray
)

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// where names the place of the last event for people.
func (e *eventReader) where() string {
	if e.form == formArray {
		return fmt.Sprintf("event %d of the array", e.line)
	}
	return fmt.Sprintf("line %d", e.line)
}

// next returns the next event's JSON text, or io.EOF. An SSE event that is cut off by the end of
// the stream is returned too: whether it is whole shows when it is read as JSON.
func (e *eventReader) next() ([]byte, error) {
	if e.form == formArray {
		return e.nextOfArray()
	}
	var data []byte
	has := false
	for {
		line, err := e.r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading events: %w", err)
		}
		end := errors.Is(err, io.EOF)
		if len(line) > 0 {
			e.line++
		}
		text := bytes.TrimSpace(line)
		if e.form == formUnknown && len(text) > 0 {
			switch {
			case text[0] == '[':
				return e.startArray(line)
			case isSSE(text):
				e.form = formSSE
			default:
				e.form = formNDJSON
			}
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case e.form != formSSE:
			if len(text) > 0 {
				return text, nil
			}
		case len(line) == 0:
			if has {
				return data, nil
			}
		default:
			if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				if has {
					// Lines of one event are joined by a space: JSON has no bare line feed in
					// a string, so that this changes nothing but white space.
					data = append(data, ' ')
				}
				data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
				has = true
			} else if e.strict && !isSSE(line) {
				return nil, fmt.Errorf("reading events: %.80q is no line of SSE", line)
			}
		}
		if end {
			if has {
				return data, nil
			}
			return nil, io.EOF
		}
	}
}

// startArray goes on with the events of an array, whose first line was read already.
func (e *eventReader) startArray(line []byte) ([]byte, error) {
	e.form, e.line = formArray, 0
	e.array = json.NewDecoder(io.MultiReader(bytes.NewReader(line), e.r))
	if _, err := e.array.Token(); err != nil {
		return nil, fmt.Errorf("reading array of events: %w", err)
	}
	return e.nextOfArray()
}

func (e *eventReader) nextOfArray() ([]byte, error) {
	if !e.array.More() {
		if _, err := e.array.Token(); err != nil {
			return nil, fmt.Errorf("reading array of events: it does not end behind event %d: %w", e.line, unexpected(err))
		}
		if _, err := e.array.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading array of events: something follows it")
		}
		return nil, io.EOF
	}
	e.line++
	var event json.RawMessage
	if err := e.array.Decode(&event); err != nil {
		return nil, fmt.Errorf("reading array of events: event %d: %w", e.line, unexpected(err))
	}
	var line bytes.Buffer // one line, whatever the layout of the array
	if err := json.Compact(&line, event); err != nil {
		return nil, fmt.Errorf("reading array of events: event %d: %w", e.line, err)
	}
	return line.Bytes(), nil
}

// unexpected is for an end in the middle, which is not the end of the events.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func isSSE(line []byte) bool {
	for _, field := range []string{"data", "event", "id", "retry", ""} {
		if bytes.HasPrefix(line, []byte(field+":")) {
			return true
		}
	}
	return false
}
