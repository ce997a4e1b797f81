package main

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
)

func TestCompactor_ReadinessFollowsKafka(t *testing.T) {
	apptest.KafkaComesAndGoes(t, stage(), "--dir", t.TempDir(), "--instance-id", "one")
}
