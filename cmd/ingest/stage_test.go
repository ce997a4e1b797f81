package main

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
)

func TestStage_Help(t *testing.T) { apptest.Help(t, stage()) }

func TestStage_OneClearLineForWhatCannotWork(t *testing.T) {
	apptest.Refuses(t, stage(), "no Kafka brokers: pass --brokers")
	apptest.Refuses(t, stage(), "unknown flag: --broker; see ingest --help", "--broker", "127.0.0.1:1")
	apptest.Refuses(t, stage(), "unexpected argument", "please")
	apptest.Refuses(t, stage(), "no credentials are configured, so every request would be refused: pass --api-keys FILE", "--brokers", "127.0.0.1:1", "--admin-listen", "127.0.0.1:0")
	apptest.Refuses(t, stage(), "cannot be combined with", "--brokers", "127.0.0.1:1", "--tenant", "t", "--api-keys", "keys.yaml",
		"--admin-listen", "127.0.0.1:0")
	apptest.Refuses(t, stage(), "no authentication", "--brokers", "127.0.0.1:1", "--tenant", "t", "--listen", "0.0.0.0:0", "--admin-listen",
		"127.0.0.1:0")
	apptest.Refuses(t, stage(), "must be at least", "--brokers", "127.0.0.1:1", "--tenant", "t", "--memory", "1MiB", "--admin-listen",
		"127.0.0.1:0")
	apptest.Refuses(t, stage(), "ask for TLS too", "--brokers", "127.0.0.1:1", "--tenant", "t", "--kafka-ca-file", "ca.pem", "--admin-listen",
		"127.0.0.1:0")
	apptest.Refuses(t, stage(), "SASL needs a user and a file with the password", "--brokers", "127.0.0.1:1", "--tenant", "t", "--kafka-sasl",
		"PLAIN", "--admin-listen", "127.0.0.1:0")
	apptest.Refuses(t, stage(), "is not an origin: write it", "--brokers", "127.0.0.1:1", "--tenant", "t", "--cors-origin", "app.example",
		"--admin-listen", "127.0.0.1:0")
	apptest.Refuses(t, stage(), "would let every web page in", "--brokers", "127.0.0.1:1", "--tenant", "t", "--cors-origin", "*",
		"--admin-listen", "127.0.0.1:0")
	apptest.Refuses(t, stage(), "reading agents", "--brokers", "127.0.0.1:1", "--tenant", "t", "--agents", "/nowhere/agents.yaml",
		"--admin-listen", "127.0.0.1:0")
	for _, timeout := range []string{"0s", "-1s", "26s"} {
		apptest.Refuses(t, stage(), "acknowledgement timeout "+timeout+" must be more than 0 and at most 25s", "--brokers", "127.0.0.1:1",
			"--tenant", "t", "--ack-timeout", timeout, "--admin-listen", "127.0.0.1:0")
	}
}
