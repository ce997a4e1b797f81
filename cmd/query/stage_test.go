package main

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
)

func TestStage_Help(t *testing.T) { apptest.Help(t, stage()) }

func TestStage_OneClearLineForWhatCannotWork(t *testing.T) {
	apptest.Refuses(t, stage(), "pass --clickhouse URL", "--brokers 127.0.0.1:1 --tenant t")
	apptest.Refuses(t, stage(), "no credentials are configured", "--brokers 127.0.0.1:1")
	apptest.Refuses(t, stage(), "no authentication", "--brokers 127.0.0.1:1 --sqlite x --tenant t --listen 0.0.0.0:0")
}
