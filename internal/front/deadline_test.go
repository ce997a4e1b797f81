package front

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/klauspost/compress/gzhttp"
)

// deadlines is a connection that notes the deadline of its writes.
type deadlines struct {
	*httptest.ResponseRecorder
	until time.Time
	moved int
}

func (d *deadlines) SetWriteDeadline(until time.Time) error {
	d.until = until
	d.moved++
	return nil
}

// A revocation leaves an answer 2 s, which no later write may extend: neither a large answer nor a stream.
func TestWriter_KeepsTheLastDeadline(t *testing.T) {
	last := time.Now().Add(2 * time.Second)
	for name, compress := range map[string]func(http.Handler) http.HandlerFunc{
		"plain":      func(h http.Handler) http.HandlerFunc { return h.ServeHTTP },
		"compressed": func(h http.Handler) http.HandlerFunc { return gzhttp.GzipHandler(h) },
	} {
		t.Run(name, func(t *testing.T) {
			d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			compress(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				rc := http.NewResponseController(w)
				part := make([]byte, 4*stallPart)
				_, _ = w.Write(part)
				if err := rc.SetWriteDeadline(last); err != nil {
					t.Fatal(err)
				}
				_, _ = w.Write(part)
				_ = rc.Flush()
				if !d.until.Equal(last) {
					t.Errorf("the deadline is %v behind the last one", d.until.Sub(last))
				}
			})).ServeHTTP(NewWriter(d), httptest.NewRequest(http.MethodGet, "/", nil))
			if !d.until.Equal(last) || d.moved < 3 {
				t.Errorf("behind the answer the deadline is %v behind the last one, and was set %d times", d.until.Sub(last), d.moved)
			}
		})
	}
}
