package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

// Query needs the store. Kafka has only the messages of open runs, and what is sealed is answered
// without it.
func TestQuery_ReadinessFollowsTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lineage.sqlite")
	r := apptest.Start(t, stage(), "--brokers", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--tenant", "t", "--sqlite", path)
	r.NotReady(`"store":"asking store: the schema is not there yet`)
	st, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	r.Ready()
}

func TestQuery_IsNotReadyWhileTheStoreDoesNotAnswer(t *testing.T) {
	r := apptest.Start(t, stage(), "--brokers", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--tenant", "t", "--clickhouse", "http://127.0.0.1:1")
	r.NotReady(`"store":"asking ClickHouse`)
}

func TestQuery_GoesOnOnceItsStoresPasswordIsMended(t *testing.T) {
	apptest.StoreCredentialsAreMended(t, stage(), "--brokers", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--tenant", "t")
}

func TestQuery_IsReadyOnceClickHouseHasItsSchema(t *testing.T) {
	server := clickhousetest.StartGuarded(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(server.Password), 0o600); err != nil {
		t.Fatal(err)
	}
	r := apptest.Start(t, stage(), "--brokers", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--tenant", "t",
		"--clickhouse", server.Addr, "--clickhouse-database", server.Database, "--clickhouse-user", server.Username, "--clickhouse-password-file", password)
	r.NotReady("the ClickHouse schema is older than this binary; run `skein migrate`")
	st, err := clickhouse.New(clickhouse.Options{Addrs: []string{server.Addr}, Database: server.Database, Username: server.Username, Password: server.Password})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.Migrate(t.Context()), st.Close()); err != nil {
		t.Fatal(err)
	}
	r.Ready()
}
