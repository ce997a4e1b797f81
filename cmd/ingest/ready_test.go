package main

import (
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
	r.NotReady(`"api-keys":"reading API keys: open `)
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
	r.Ready()
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
