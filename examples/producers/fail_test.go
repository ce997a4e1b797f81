package producers

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// A record that cannot be sent is said, and ends the program with a status that whoever started it sees.
func TestPrograms_SayThatNotAllWasSent(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	large := []byte(`{"type":"CUSTOM","name":"large","value":"` + strings.Repeat("x", kafka.MaxBatchBytes) + `"}`)
	file := write(t, []run{{Tenant: "acme", Thread: "t", Run: "r", input: []byte(`{"messages":[]}`), events: [][]byte{large, []byte(`{"type":"X"}`)}}})
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			p.prepare(t)
			ctx, cancel := context.WithTimeout(t.Context(), sendTimeout)
			defer cancel()
			out, err := exec.CommandContext(ctx, p.command[0], p.args(cfg.Brokers, cfg.Topics().Events, file)...).CombinedOutput()
			if err == nil || ctx.Err() != nil || !strings.Contains(string(out), "not all was sent") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
