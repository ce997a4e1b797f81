package conformance_test

import (
	"context"
	"testing"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/test/conformance"
)

func TestHTTP_EqualsTheOfficialClient(t *testing.T) {
	t.Run("with parentRunId", func(t *testing.T) {
		conformance.CheckHTTP(t, startSkein(t), conformance.HTTPOptions{})
	})
	t.Run("with parentRunId hidden", func(t *testing.T) {
		conformance.CheckHTTP(t, startSkein(t), conformance.HTTPOptions{HideParents: true})
	})
}

// startSkein starts all stages in this process on an empty folder and returns the address.
func startSkein(t *testing.T) string {
	t.Helper()
	cfg := dev.DefaultConfig()
	cfg.Data = t.TempDir()
	cfg.Listen, cfg.KafkaListen = "127.0.0.1:0", "127.0.0.1:0"
	// Not the test's own context, which ends before its cleanups: Close stops in order.
	server, err := dev.Start(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("stopping skein: %v", err)
		}
	})
	return server.URL()
}
