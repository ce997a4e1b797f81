package main

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
)

func TestCompactor_ReadinessFollowsKafka(t *testing.T) {
	apptest.KafkaComesAndGoes(t, stage(), "--dir", t.TempDir(), "--instance-id", "one")
}

func TestCompactor_GoesOnOnceItsCredentialsAreMended(t *testing.T) {
	apptest.CredentialsAreMended(t, stage(), "--dir", t.TempDir(), "--instance-id", "one")
}

func TestCompactor_WaitsForTopics(t *testing.T) {
	apptest.TopicsAreWaitedFor(t, stage(), "--dir", t.TempDir(), "--instance-id", "one")
}
