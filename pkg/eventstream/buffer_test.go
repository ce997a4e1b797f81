package eventstream

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// Readers take over the first buffers of closed ones, and of none that is open.
func TestBuffer_IsOneReadersAtATime(t *testing.T) {
	var open []*Reader
	for round := range 200 {
		text, want := "", []string(nil)
		for i := range 4 { // the second one outgrows the first buffer
			want = append(want, fmt.Sprintf(`{"round":%d,"pad":%q}`, round, strings.Repeat("x", []int{10, 3000, 20, 5}[i])))
			text += want[i] + "\n"
		}
		other := New(strings.NewReader(text), NDJSON, 1<<20, 1000, Memory{})
		open = append(open, other)
		first, err := other.Next()
		if err != nil {
			t.Fatal(err)
		}
		r := New(strings.NewReader(text), NDJSON, 1<<20, 1000, Memory{})
		var got []string
		for {
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.Value))
		}
		r.Close()
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("round %d: got %q, want %q", round, got, want)
		}
		if string(first.Value) != want[0] {
			t.Fatalf("round %d: an open reader's event is now %q, want %q", round, first.Value, want[0])
		}
		if len(open) > 3 {
			open[0].Close()
			open = open[1:]
		}
	}
	for _, r := range open {
		r.Close()
	}
}
