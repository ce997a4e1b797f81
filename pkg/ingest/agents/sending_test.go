package agents

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

// A run may go on for a day: its input is let go once the agent has it.
func TestCaller_LetsTheInputGoWhileTheAnswerGoesOn(t *testing.T) {
	for name, early := range map[string]bool{"read before the answer": false, "read behind the answer's headers": true} {
		t.Run(name, func(t *testing.T) {
			got := make(chan []byte, 1)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := func() {
					w.Header().Set("Content-Type", "text/event-stream")
					rc := http.NewResponseController(w)
					_ = rc.EnableFullDuplex()
					_ = rc.Flush()
				}
				if early {
					answer()
				}
				body, _ := io.ReadAll(r.Body)
				if !early {
					answer()
				}
				got <- body
				<-r.Context().Done()
			}))
			defer srv.Close()
			c := NewCaller(Agent{Name: "a", URL: srv.URL}.withDefaults())
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			const size = 8 << 20
			freed, sent := make(chan struct{}), make(chan struct{})
			body, err := func() (io.ReadCloser, error) {
				input := bytes.Repeat([]byte("x"), size)
				runtime.AddCleanup(&input[0], func(struct{}) { close(freed) }, struct{}{})
				return c.Call(ctx, input, func() { close(sent) }, "acme", nil)
			}()
			if err != nil {
				t.Fatal(err)
			}
			if b := <-got; len(b) != size {
				t.Errorf("the agent has %d bytes", len(b))
			}
			deadline := time.After(30 * time.Second)
			for _, is := range []chan struct{}{sent, freed} {
				for done := false; !done; {
					runtime.GC()
					select {
					case <-is:
						done = true
					case <-deadline:
						t.Fatal("the input is held")
					case <-time.After(10 * time.Millisecond):
					}
				}
			}
			cancel()
			_ = body.Close()
		})
	}
}

// An input is let go where there is no answer, too.
func TestCaller_LetsTheInputGoWhereItFails(t *testing.T) {
	c := NewCaller(Agent{Name: "a", URL: "http://127.0.0.1:1/"}.withDefaults())
	defer c.Close()
	sent := 0
	if _, err := c.Call(t.Context(), []byte("{}"), func() { sent++ }, "acme", nil); err == nil || sent != 1 {
		t.Errorf("sent %d times, %v", sent, err)
	}
}
