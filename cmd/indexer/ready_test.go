package main

import (
	"path/filepath"
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

func TestIndexer_ReadinessFollowsKafka(t *testing.T) {
	apptest.KafkaComesAndGoes(t, stage(), "--sqlite", filepath.Join(t.TempDir(), "lineage.sqlite"))
}

func TestIndexer_IsNotReadyWhileTheStoreDoesNotAnswer(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	r := apptest.Start(t, stage(), "--brokers", cfg.Brokers[0], "--clickhouse", "http://127.0.0.1:1")
	r.NotReady(`"kafka":"ok"`, `"store":"asking ClickHouse`, `"index":"`)
}
