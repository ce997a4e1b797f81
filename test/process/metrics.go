package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// metricsTimeout bounds one reading of metrics: a process that is stopped by a signal accepts connections and does not answer.
const metricsTimeout = 5 * time.Second

// Metrics are the values that the stage's administration shows, by series as they are written there:
// name{label="value"}. The stage must have started.
func (p *Process) Metrics(tb testing.TB) map[string]float64 {
	tb.Helper()
	p.Said("started", "admin")
	m, err := p.ReadMetrics()
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// ReadMetrics is Metrics for a process that may not answer.
func (p *Process) ReadMetrics() (map[string]float64, error) {
	address, ok := p.Logged("started", "admin")
	if !ok {
		return nil, fmt.Errorf("reading the metrics of %s: it has not started", p.Name)
	}
	m, err := MetricsAt(address)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", p.Name, err)
	}
	return m, nil
}

// MetricsAt reads the metrics of an address of administration. A name without labels has the sum of its series.
func MetricsAt(address string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	out := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(series, "#") || !ok {
			continue
		}
		// A label's value may hold spaces; no series that a test asks for has one.
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		out[series] = v
		if name, _, labels := strings.Cut(series, "{"); labels {
			out[name] += v
		}
	}
	return out, lines.Err()
}
