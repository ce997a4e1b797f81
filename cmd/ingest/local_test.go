package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// Where nobody needs a key, any web page in this machine's browser could call.
func TestIngest_WithoutKeysKeepsWebPagesOut(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	r := apptest.Start(t, stage(), "--brokers", cfg.Brokers[0], "--listen", "127.0.0.1:0", "--tenant", "t")
	url := "http://" + r.Said("listening", "address") + "/v1/threads/t/runs/r/events"
	r.Ready()
	for name, c := range map[string]struct {
		host, origin string
		want         int
	}{
		"own name":       {"", "", http.StatusOK},
		"rebound name":   {"rebound.example", "", http.StatusForbidden},
		"another origin": {"", "https://page.example", http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host // empty is the address's
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the status is of interest
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, c.want)
		}
	}
}

// A page that is named may call, also without a key; another one still may not.
func TestIngest_LetsNamedPagesIn(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	r := apptest.Start(t, stage(), "--brokers", cfg.Brokers[0], "--listen", "127.0.0.1:0", "--tenant", "t", "--cors-origin", "https://app.example,http://localhost:3000")
	url := "http://" + r.Said("listening", "address") + "/v1/threads/t/runs/r/events"
	r.Ready()
	for _, c := range []struct {
		method, origin string
		want           int
		allowed        string
	}{
		{http.MethodOptions, "https://app.example", http.StatusNoContent, "https://app.example"},
		{http.MethodPost, "https://app.example", http.StatusOK, "https://app.example"},
		{http.MethodPost, "http://localhost:3000", http.StatusOK, "http://localhost:3000"},
		{http.MethodPost, "https://page.example", http.StatusForbidden, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url, strings.NewReader(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", c.origin)
		req.Header.Set("Access-Control-Request-Method", http.MethodPost)
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the headers are of interest
		if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != c.want || got != c.allowed {
			t.Errorf("%s of %s: %d, allowed is %q", c.method, c.origin, resp.StatusCode, got)
		}
	}
}
