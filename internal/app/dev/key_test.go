package dev

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// Where other machines can reach the API, requests need the key of the data folder, which a restart keeps.
func TestServer_ListensBeyondLoopbackWithAKey(t *testing.T) {
	data := t.TempDir()
	var before string
	for range 2 {
		cfg := DefaultConfig()
		cfg.Data, cfg.Listen, cfg.KafkaListen = data, "0.0.0.0:0", "127.0.0.1:0"
		s, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		key, err := os.ReadFile(s.KeyFile())
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(s.KeyFile()); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key's file: %v, %v", info, err)
		}
		if before != "" && string(key) != before {
			t.Error("a restart has made another key")
		}
		before = string(key)
		for token, want := range map[string]int{"": http.StatusUnauthorized, "Bearer wrong": http.StatusUnauthorized,
			"Bearer " + strings.TrimSpace(before): http.StatusOK} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/v1/threads", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "skein.example:8420" // as a container's port is reached
			req.Header.Set("Authorization", token)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close() // not read
			if resp.StatusCode != want {
				t.Errorf("with %.10q: %d, want %d", token, resp.StatusCode, want)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
