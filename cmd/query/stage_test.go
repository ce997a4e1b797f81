package main

import (
	"path/filepath"
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
)

func TestStage_Help(t *testing.T) { apptest.Help(t, stage()) }

func TestStage_OneClearLineForWhatCannotWork(t *testing.T) {
	apptest.Refuses(t, stage(), "pass --clickhouse URL", "--brokers", "127.0.0.1:1", "--tenant", "t", "--admin-listen", "127.0.0.1:0")
	apptest.Refuses(t, stage(), "no credentials are configured, so every request would be refused: pass --api-keys FILE", "--brokers", "127.0.0.1:1", "--admin-listen", "127.0.0.1:0")
	apptest.Refuses(t, stage(), "no authentication", "--brokers", "127.0.0.1:1", "--sqlite", filepath.Join(t.TempDir(), "x.sqlite"),
		"--tenant", "t", "--listen", "0.0.0.0:0", "--admin-listen", "127.0.0.1:0")
}
