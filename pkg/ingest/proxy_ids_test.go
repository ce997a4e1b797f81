package ingest

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// withoutIDs is the agent's stream out of the proxy's: without the lines that number its events.
type withoutIDs struct {
	io.ReadCloser
	inLine bool
	held   []byte // the beginning of a line that may be one of those
	rest   []byte // read, and to be given
	err    error
}

var idLine = regexp.MustCompile(`^id: seq:[0-9]+(\r\n|\n|\r.)$`)

func (w *withoutIDs) Read(to []byte) (int, error) {
	buf := make([]byte, 32<<10)
	for len(w.rest) == 0 && w.err == nil {
		var n int
		n, w.err = w.ReadCloser.Read(buf)
		w.take(buf[:n])
		if w.err != nil {
			w.rest = append(w.rest, w.held...)
		}
	}
	n := copy(to, w.rest)
	w.rest = w.rest[n:]
	if n > 0 {
		return n, nil
	}
	return 0, w.err
}

func (w *withoutIDs) take(b []byte) {
	for len(b) > 0 {
		if w.inLine {
			n := bytes.IndexAny(b, "\r\n") + 1
			if w.inLine = n == 0; w.inLine {
				n = len(b)
			}
			w.rest, b = append(w.rest, b[:n]...), b[n:]
			continue
		}
		w.held, b = append(w.held, b[0]), b[1:]
		switch prefix := "id: seq:"; {
		case idLine.Match(w.held):
			if last := w.held[len(w.held)-1]; last != '\n' { // it ended with a CR, and this is of the next line
				b = append([]byte{last}, b...)
			}
			w.held = nil
		case len(w.held) <= len(prefix) && strings.HasPrefix(prefix, string(w.held)),
			len(w.held) > len(prefix) && bytes.HasPrefix(w.held, []byte(prefix)) && len(bytes.Trim(w.held[len(prefix):], "0123456789\r")) == 0:
		default:
			b, w.held = append(w.held, b...), nil
			w.inLine = b[0] != '\n' && b[0] != '\r'
			if !w.inLine {
				w.rest, b = append(w.rest, b[0]), b[1:]
			}
		}
	}
}

// Each event that is recorded has its number as id, which the run's live stream takes: the last of its lines, so that it counts where
// the agent has numbered it otherwise. What is no event has none.
func TestProxy_NumbersEventsForWhoIsCut(t *testing.T) {
	a := answers(": hello\n\n", "id: 77\ndata: "+begin+"\n\n", "data: {\"no\":\"event\"}\n\n", "data: "+said+"\r\n\r\n",
		"data: "+finished+"\r\r")
	b := startBehind(t, proxyConfig(t), nil, a)
	resp := b.callRaw(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	want := ": hello\n\nid: 77\ndata: " + begin + "\nid: seq:0\n\ndata: {\"no\":\"event\"}\n\ndata: " + said + "\r\nid: seq:1\r\n\r\ndata: " +
		finished + "\rid: seq:2\r\r"
	if err != nil || string(got) != want || resp.StatusCode != http.StatusOK {
		t.Errorf("%d, %v\n%q\nwant\n%q", resp.StatusCode, err, got, want)
	}
	for i, r := range b.published(4)[1:] {
		if h := headersOf(t, r); h.Seq != int64(i) {
			t.Errorf("record %d has number %d", i, h.Seq)
		}
	}
}
