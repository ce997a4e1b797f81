package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// While a request is under way others are taken, and told; once the time is over it is told to end.
func TestServeDraining_TellsCallersUntilTheLastRequestHasEnded(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"it ends by itself": time.Minute, "it is told to end": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var draining atomic.Bool
			under, end := make(chan struct{}), make(chan struct{})
			ended := atomic.Bool{}
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if draining.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				close(under)
				<-end
				_, _ = io.WriteString(w, "whole")
			})
			l, err := Listen(t.Context(), "127.0.0.1:0", "listen")
			if err != nil {
				t.Fatal(err)
			}
			url := "http://" + l.Addr().String()
			ctx, signal := context.WithCancel(t.Context())
			began := make(chan struct{})
			served := make(chan error, 1)
			go func() {
				served <- ServeDraining(ctx, l, h, slog.New(slog.DiscardHandler), Drain{
					Timeout: timeout,
					Begin:   func() { draining.Store(true); close(began) },
					End:     func() { ended.Store(true); close(end) },
				})
			}()
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			get := func() (int, string) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				if err != nil {
					return 0, err.Error()
				}
				resp, err := client.Do(req)
				if err != nil {
					return 0, err.Error()
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				if err != nil {
					return 0, err.Error()
				}
				return resp.StatusCode, string(b)
			}
			first := make(chan string, 1)
			go func() { _, body := get(); first <- body }()
			<-under
			signal()
			<-began
			if timeout > time.Second {
				if status, body := get(); status != http.StatusServiceUnavailable {
					t.Errorf("the next one is told %d %s", status, body)
				}
				close(end)
			}
			if body := <-first; body != "whole" {
				t.Errorf("the first one reads %q", body)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			if ended.Load() != (timeout < time.Second) {
				t.Errorf("told to end is %t", ended.Load())
			}
		})
	}
}
