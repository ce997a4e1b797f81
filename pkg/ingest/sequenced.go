package ingest

import (
	"bytes"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// sequencedReader reads lines of the form {"seq": n, "event": {…}}. The event's bytes are those in
// the line. Other members are passed over. Numbers have to rise within a body: one that does not would be
// dropped behind ingest, where its sender does not see it. Over bodies they may come again: that is what they are for.
type sequencedReader struct {
	lines *lineReader
	limit int
	last  int64 // the last number; -1 before the first
}

func (s *sequencedReader) next() (event, error) {
	for {
		line, err := s.lines.next()
		if err != nil {
			return event{}, err
		}
		line = bytes.Trim(line, space)
		if len(line) == 0 {
			continue
		}
		return s.unwrap(line, s.lines.line)
	}
}

func (s *sequencedReader) unwrap(line []byte, at int64) (event, error) {
	if err := agui.CheckDepth(line, agui.MaxEventDepth+len("{")); err != nil {
		return event{}, badEventError{malformed(err, at)}
	}
	if !agui.IsObject(line) {
		return event{}, badEventError{badLine(agui.RuleNotObject, at, "not a JSON object: want {\"seq\": n, \"event\": {…}}")}
	}
	var seq, value []byte
	for name, v := range agui.Members(line) {
		switch name {
		case "seq":
			seq = v
		case "event":
			value = v
		}
	}
	// Digits only: 1.0 and 1e3 are numbers of JSON too, but nobody counts like that.
	n, err := strconv.ParseUint(string(seq), 10, 63)
	if err != nil {
		return event{}, badEventError{badLine(reasonSeq, at, "seq must be the event's number in its run, from 0: want {\"seq\": n, \"event\": {…}}")}
	}
	if int64(n) <= s.last {
		return event{}, badEventError{badLine(reasonSeqOrder, at, "seq %d does not rise: a line before it has %d, and what comes behind a greater number is dropped", n, s.last)}
	}
	s.last = int64(n)
	if value == nil {
		return event{}, badEventError{badLine(agui.RuleNotObject, at, "no event: want {\"seq\": n, \"event\": {…}}")}
	}
	if len(value) > s.limit {
		return event{}, badEventError{tooLarge(at, s.limit)}
	}
	value, held := s.lines.own(value)
	return event{value: value, seq: int64(n), line: at, held: held}, nil
}
