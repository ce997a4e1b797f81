package main

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
)

func TestStage_Help(t *testing.T) { apptest.Help(t, stage()) }

func TestStage_OneClearLineForWhatCannotWork(t *testing.T) {
	apptest.Refuses(t, stage(), "no Kafka brokers: say --brokers")
	apptest.Refuses(t, stage(), "unknown flag: --broker; see indexer --help", "--broker", "127.0.0.1:1")
	apptest.Refuses(t, stage(), "unexpected argument", "please")
	for _, delay := range []string{"0s", "31s"} {
		apptest.Refuses(t, stage(), "indexer: a block's delay of "+delay, "--brokers", "127.0.0.1:1", "--sqlite", "x", "--max-delay", delay, "--admin-listen", "127.0.0.1:0")
	}
	apptest.Refuses(t, stage(), "say --clickhouse URL", "--brokers", "127.0.0.1:1", "--admin-listen", "127.0.0.1:0")
}
