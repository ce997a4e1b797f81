package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/eventstream"
)

const byteOrderMark = "\xef\xbb\xbf"

// openEvents opens a file of events; - is stdin.
func openEvents(path string, stdin io.Reader) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, app.Usagef("opening events: %w", err)
	}
	return f, nil
}

// eventReader reads events in any form from files and stdin.
type eventReader struct{ *eventstream.Reader }

func newEventReader(r io.Reader) eventReader {
	return eventReader{eventstream.New(r, eventstream.Any, math.MaxInt/4, 64<<10, eventstream.Memory{})}
}

// next returns the next event's JSON text on one line, or io.EOF. It does not check the event: the text may also be something else in an
// event's place, or an event that the end of the stream cut off. Decoding it finds such faults.
func (e eventReader) next() ([]byte, error) {
	event, err := e.Next()
	var bad *eventstream.Error
	switch {
	case errors.As(err, &bad):
		err = fmt.Errorf("%s: %s", e.where(), bad.Detail)
	case err != nil && !errors.Is(err, io.EOF):
		err = fmt.Errorf("reading events: %w", err)
	}
	return bytes.Clone(event.Value), err
}

// where describes the place of the last event for people.
func (e eventReader) where() string {
	if e.Form() == eventstream.Array {
		return fmt.Sprintf("event %d of the array", e.Count())
	}
	return fmt.Sprintf("line %d", e.Line())
}

// in returns the place of the last event of a file, such as "FILE:12".
func (e eventReader) in(path string) string {
	if e.Form() == eventstream.Array {
		return path + ": " + e.where()
	}
	return fmt.Sprintf("%s:%d", path, e.Line())
}
