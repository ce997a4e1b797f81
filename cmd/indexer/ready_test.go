package main

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

func TestIndexer_WaitsForTheSchema(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	path := filepath.Join(t.TempDir(), "lineage.sqlite")
	r := apptest.Start(t, stage(), "--brokers", cfg.Brokers[0], "--sqlite", path)
	r.NotReady(`"status":"starting"`, `"kafka":"ok"`, `"topics":"ok"`, `"store":"asking store: the schema is not there yet; run skein migrate`)
	apptest.Migrated(t, path)
	r.Ready()
}

func TestIndexer_EndsWhereTheSchemaIsNewer(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	path := apptest.Migrated(t, filepath.Join(t.TempDir(), "lineage.sqlite"))
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "PRAGMA user_version = 99")
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := apptest.Run(t, stage(), "--brokers", cfg.Brokers[0], "--sqlite", path, "--admin-listen", "127.0.0.1:0", "--log-level",
		"error")
	if code != 1 || !strings.Contains(stderr, "it is newer (number 99") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestIndexer_GoesOnOnceItsStoresPasswordIsMended(t *testing.T) {
	apptest.StoreCredentialsAreMended(t, stage(), "--brokers", kafkatest.Start(t, 1).Brokers[0])
}
