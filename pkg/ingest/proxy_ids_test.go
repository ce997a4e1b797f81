package ingest

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"regexp"
	"testing"
)

// withoutIDs is the agent's stream out of the proxy's: without the lines that number its events, which end with a line feed.
type withoutIDs struct {
	io.Closer
	from   *bufio.Reader
	inLine bool   // the last part did not end its line
	part   []byte // read, and to be given
}

var idLine = regexp.MustCompile(`^id: seq:[0-9]+\r?\n$`)

func (w *withoutIDs) Read(to []byte) (int, error) {
	for len(w.part) == 0 {
		part, err := w.from.ReadSlice('\n')
		if w.inLine || !idLine.Match(part) {
			w.part = part
		}
		if w.inLine = errors.Is(err, bufio.ErrBufferFull); err != nil && len(part) == 0 {
			return 0, err
		}
	}
	n := copy(to, w.part)
	w.part = w.part[n:]
	return n, nil
}

// Each event that is recorded has its number as id, which the run's live stream takes: the last of its lines, so that it counts where
// the agent has numbered it otherwise.
func TestProxy_NumbersEventsForWhoIsCut(t *testing.T) {
	a := answers(": hello\n\n", "id: 77\ndata: "+begin+"\n\n", "data: {\"no\":\"event\"}\n\n", "data: "+said+"\r\n\r\n",
		"data: "+finished+"\r\r")
	b := startBehind(t, proxyConfig(t), nil, a)
	resp := b.callRaw(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	want := ": hello\n\nid: 77\ndata: " + begin + "\nid: seq:0\n\n" +
		"data: {\"no\":\"event\"}\nid: seq:1\n\ndata: " + said + "\r\nid: seq:2\r\n\r\ndata: " +
		finished + "\rid: seq:3\r\r"
	if err != nil || string(got) != want || resp.StatusCode != http.StatusOK {
		t.Errorf("%d, %v\n%q\nwant\n%q", resp.StatusCode, err, got, want)
	}
	for i, r := range b.published(5)[1:] {
		if h := headersOf(t, r); h.Seq != int64(i) {
			t.Errorf("record %d has number %d", i, h.Seq)
		}
	}
}
