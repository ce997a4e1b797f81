package ingest

import "bytes"

// space is the white space of JSON.
const space = " \t\r\n"

// ndjsonReader reads one event a line. Empty lines are passed over, white space round an event goes.
type ndjsonReader struct {
	lines *lineReader
	limit int
}

func (n *ndjsonReader) next() (event, error) {
	for {
		line, err := n.lines.next()
		if err != nil {
			return event{}, err
		}
		line = bytes.Trim(line, space)
		if len(line) == 0 {
			continue
		}
		if len(line) > n.limit {
			return event{}, badEventError{tooLarge(n.lines.line, n.limit)}
		}
		value, held := n.lines.own(line)
		return event{value: value, seq: -1, line: n.lines.line, held: held}, nil
	}
}
