package ingest

import (
	"bytes"
	"errors"
	"io"
)

// sseReader reads server-sent events (WHATWG HTML, 9.2): an event is the data of its data lines,
// joined by line feeds. Lines end with LF or CRLF. Comments and the fields event, id and retry carry
// nothing of AG-UI and are passed over.
//
// An event that the body ends with is taken without the empty line that should follow: HTTP says
// whether a body is whole, and a body that was cut is an error before that.
type sseReader struct {
	lines *lineReader
	limit int

	data grown
	has  bool
	at   int64 // line of the event's first data line
	lost bool  // the rest of an event that was too large is still there
}

func (s *sseReader) next() (event, error) {
	s.data.reset()
	s.has = false
	for {
		s.lines.body.begun(s.has)
		line, err := s.lines.next()
		if errors.Is(err, io.EOF) && len(s.data.b) > 0 {
			return s.event()
		}
		if err != nil {
			s.lost = true // where there is more behind it
			return event{}, err
		}
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		if len(line) == 0 {
			// By the standard, empty data is no event.
			s.lost = false
			if len(s.data.b) > 0 {
				return s.event()
			}
			s.has = false
			continue
		}
		if s.lost {
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) != "data" {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if !s.has {
			s.has, s.at = true, s.lines.line
		} else {
			if rej := s.data.add([]byte{'\n'}); rej != nil {
				return event{}, s.lines.body.failed(rej, s.at)
			}
		}
		if len(s.data.b)+len(value) > s.limit {
			s.lost = true
			return event{}, badEventError{tooLarge(s.at, s.limit)}
		}
		if rej := s.data.add(value); rej != nil {
			return event{}, s.lines.body.failed(rej, s.at)
		}
	}
}

func (s *sseReader) event() (event, error) {
	s.lines.body.begun(false)
	if string(bytes.Trim(s.data.b, space)) == "[DONE]" {
		return event{}, badEventError{badLine(reasonDone, s.at, "[DONE] is no AG-UI event (the official client fails on it): end the body instead")}
	}
	value, held := s.data.own()
	return event{value: value, seq: -1, line: s.at, held: held}, nil
}
