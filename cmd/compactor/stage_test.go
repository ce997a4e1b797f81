package main

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
)

func TestStage_Help(t *testing.T) { apptest.Help(t, stage()) }

func TestStage_OneClearLineForWhatCannotWork(t *testing.T) {
	apptest.Refuses(t, stage(), "pass --dir FOLDER (or SKEIN_DIR)", "--brokers 127.0.0.1:1")
	apptest.Refuses(t, stage(), `"steps" is no family of events: there are step, subagent, custom, meta, unknown, raw`, "--keep-events steps")
}
