package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tenant"
)

func TestIngest_ReadinessFollowsKafka(t *testing.T) {
	apptest.KafkaComesAndGoes(t, stage(), "--listen", "127.0.0.1:0", "--tenant", "t")
}

func TestIngest_WaitsForTopics(t *testing.T) {
	apptest.TopicsAreWaitedFor(t, stage(), "--listen", "127.0.0.1:0", "--tenant", "t")
}

func TestIngest_IsNotReadyUntilKeysWereRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	cfg := kafkatest.Start(t, 1)
	r := apptest.Start(t, stage(), "--brokers", cfg.Brokers[0], "--listen", "127.0.0.1:0", "--api-keys", path)
	url := "http://" + r.Said("listening", "address") + "/v1/threads/t/runs/r/events"
	r.NotReady(`"api-keys":"reading API keys of `)
	key := tenant.NewKey()
	if got := post(t, url, key); got != http.StatusUnauthorized {
		t.Errorf("without keys the answer is %d", got)
	}
	if err := tenant.AppendKey(path, tenant.Entry("k", "acme", []tenant.Scope{tenant.ScopePublish}, key)); err != nil {
		t.Fatal(err)
	}
	r.Ready()
	if got := post(t, url, key); got != http.StatusOK {
		t.Errorf("with the key the answer is %d", got)
	}
	if err := os.WriteFile(path, []byte("keys: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Said("API keys were not read; those read before stay in force", "error")
	if got := post(t, url, key); got != http.StatusOK {
		t.Errorf("with a broken file the answer is %d", got)
	}
	r.Ready(`"status":"degraded"`, `"api-keys-file":"reading API keys of `)
}

// A certificate that is broken while it is in use degrades, and the one before stays in force.
func TestIngest_IsDegradedByABrokenCertificate(t *testing.T) {
	cert, key, err := kafkatest.Certificate("ingest", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	for file, text := range map[string][]byte{
		certFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}),
		keyFile:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := apptest.Start(t, stage(), "--brokers", kafkatest.Start(t, 1).Brokers[0], "--listen", "127.0.0.1:0", "--tenant", "t",
		"--tls-cert-file", certFile, "--tls-key-file", keyFile)
	r.Ready(`"status":"ok"`, `"tls":"ok"`)
	if err := os.WriteFile(keyFile, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Ready(`"status":"degraded"`, `"tls":"reading a listener's certificate`)
}

// Where nobody needs a key, requests are taken under the machine's own name, and of web pages those that are named.
func TestIngest_WithoutKeysTakesWhatNamedPagesSend(t *testing.T) {
	const page = "http://localhost:3000"
	cfg := kafkatest.Start(t, 1)
	r := apptest.Start(t, stage(), "--brokers", cfg.Brokers[0], "--listen", "127.0.0.1:0", "--tenant", "t", "--cors-origin", page)
	url := "http://" + r.Said("listening", "address") + "/v1/threads/t/runs/r/events"
	r.Ready()
	for _, c := range []struct {
		host, origin string
		status       int
		allowed      string
	}{
		{"", "", http.StatusOK, ""},
		{"", page, http.StatusOK, page},
		{"", "https://page.example", http.StatusForbidden, ""},
		{"page.example", "", http.StatusForbidden, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"type":"CUSTOM","name":"n","value":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		req.Header.Set("Content-Type", "application/x-ndjson")
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the head is of interest
		if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != c.status || got != c.allowed {
			t.Errorf("host %q, origin %q: status %d, allowed is %q", c.host, c.origin, resp.StatusCode, got)
		}
	}
}

func post(t *testing.T, url, key string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // only the status is of interest
	return resp.StatusCode
}
