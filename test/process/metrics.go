package process

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metrics are the values that the stage's administration shows, by series as they are written there:
// name{label="value"}. The stage must have started.
func (p *Process) Metrics(tb testing.TB) map[string]float64 {
	tb.Helper()
	status, body := Get(tb, "http://"+p.Said("started", "admin")+"/metrics")
	if status != http.StatusOK {
		tb.Fatalf("the metrics of %s: %d %s", p.Name, status, body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		series, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if strings.HasPrefix(line, "#") || !ok {
			continue
		}
		// A label's value may hold spaces; no series that a test asks for has one.
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			out[series] = v
		}
	}
	return out
}
