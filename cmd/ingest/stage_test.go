package main

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
)

func TestStage_Help(t *testing.T) { apptest.Help(t, stage()) }

func TestStage_OneClearLineForWhatCannotWork(t *testing.T) {
	const at = "--brokers 127.0.0.1:1 "
	for want, args := range map[string]string{
		"no Kafka brokers: pass --brokers":          "",
		"unknown flag: --broker; see ingest --help": "--broker 127.0.0.1:1",
		"unexpected argument":                       "please",
		"no credentials are configured, so every request would be refused: pass --api-keys FILE": at,
		"cannot be combined with":                        at + "--tenant t --api-keys keys.yaml",
		"no authentication":                              at + "--tenant t --listen 0.0.0.0:0",
		"must be at least":                               at + "--tenant t --memory 1MiB",
		"ask for TLS too":                                at + "--tenant t --kafka-ca-file ca.pem",
		"SASL needs a user and a file with the password": at + "--tenant t --kafka-sasl PLAIN",
		"is not an origin: write it":                     at + "--tenant t --cors-origin app.example",
		"would let every web page in":                    at + "--tenant t --cors-origin *",
		"reading agents":                                 at + "--tenant t --agents /nowhere/agents.yaml",
		"acknowledgement timeout 0s must be more than 0 and at most 25s":  at + "--tenant t --ack-timeout 0s",
		"acknowledgement timeout 26s must be more than 0 and at most 25s": at + "--tenant t --ack-timeout 26s",
	} {
		apptest.Refuses(t, stage(), want, args)
	}
}
