package main

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/pkg/kafka"
)

func TestCompactor_ReadinessFollowsKafka(t *testing.T) {
	apptest.KafkaComesAndGoes(t, stage(), "--dir", t.TempDir(), "--instance-id", "one")
}

func TestCompactor_GoesOnOnceItsCredentialsAreMended(t *testing.T) {
	apptest.CredentialsAreMended(t, stage(), "--dir", t.TempDir(), "--instance-id", "one")
}

func TestCompactor_TellsOfAnOpenTransaction(t *testing.T) {
	apptest.OpenTransactionIsTold(t, stage(), func(all kafka.Topics) string { return all.Events }, "--dir", t.TempDir(), "--instance-id",
		"one")
}
