package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tenant"
)

func TestIngest_ReadinessFollowsKafka(t *testing.T) {
	apptest.KafkaComesAndGoes(t, stage(), "--listen", "127.0.0.1:0", "--tenant", "t")
}

func TestIngest_GoesOnOnceItsCredentialsAreMended(t *testing.T) {
	apptest.CredentialsAreMended(t, stage(), "--listen", "127.0.0.1:0", "--tenant", "t")
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

func TestIngest_EndsWherePartitionCountsDifferAtTheStart(t *testing.T) {
	c := kafkatest.StartCluster(t, 2, kafkatest.WithoutTopics())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	adm, err := kafka.NewAdmin(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	for i, topic := range c.Config.Topics().All() {
		if _, err := adm.CreateTopic(ctx, int32(1+i%2), 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	_, stderr, code := apptest.Run(t, stage(), "--brokers", c.Config.Brokers[0], "--listen", "127.0.0.1:0", "--tenant", "t", "--admin-listen", "127.0.0.1:0", "--log-level", "error")
	if code != 1 || !strings.Contains(stderr, "partition counts differ: skein.events has 1, skein.runs has 2") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d, %s", code, stderr)
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
