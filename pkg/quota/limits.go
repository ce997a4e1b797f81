package quota

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/skeinhq/skein/pkg/record"
)

// Kind names one limit of a tenant.
type Kind int

// The limits that are counted over all requests of a tenant.
const (
	Requests Kind = iota // requests a second
	Events               // events and inputs a second
	Bytes                // bytes of events and inputs a second, decompressed
	Streams              // requests that stay open for long: publishing streams, proxied runs, live streams
	Reads                // reads that are being answered
	kinds
)

// names are the keys of the file, the limit's name in answers and the label of metrics.
var names = [kinds]string{"requests_per_second", "events_per_second", "bytes_per_second", "concurrent_streams", "concurrent_reads"}

// String returns the limit's name as the file has it.
func (k Kind) String() string { return names[k] }

// isRate tells the limits that have a token bucket from those that have slots.
func (k Kind) isRate() bool { return k <= Bytes }

// Limits are those of one tenant. 0 means no limit, except for sizes, where the stage's own limit always holds.
type Limits struct {
	RequestsPerSecond int64
	EventsPerSecond   int64
	BytesPerSecond    int64
	ConcurrentStreams int64
	ConcurrentReads   int64
	// MaxEventBytes, MaxInputBytes and MaxRequestBytes bound one event, one RunAgentInput and one decompressed body.
	MaxEventBytes   int64
	MaxInputBytes   int64
	MaxRequestBytes int64
	// OpenRuns and OpenRunBytes are the compactor's (partition.Quota).
	OpenRuns     int64
	OpenRunBytes int64
}

func (l *Limits) of(k Kind) int64 {
	return [kinds]int64{l.RequestsPerSecond, l.EventsPerSecond, l.BytesPerSecond, l.ConcurrentStreams, l.ConcurrentReads}[k]
}

// Smaller returns the smaller one of a stage's size limit and a tenant's.
func Smaller(stage int, tenant int64) int {
	if tenant > 0 && tenant < int64(stage) {
		return int(tenant)
	}
	return stage
}

// ErrFile says that a file of quotas is not as it must be.
var ErrFile = errors.New("not a file of quotas")

// entry is a Limits of the file; nil leaves the limit to the default.
type entry struct {
	RequestsPerSecond *whole `yaml:"requests_per_second"`
	EventsPerSecond   *whole `yaml:"events_per_second"`
	BytesPerSecond    *whole `yaml:"bytes_per_second"`
	ConcurrentStreams *whole `yaml:"concurrent_streams"`
	ConcurrentReads   *whole `yaml:"concurrent_reads"`
	MaxEventBytes     *whole `yaml:"max_event_bytes"`
	MaxInputBytes     *whole `yaml:"max_input_bytes"`
	MaxRequestBytes   *whole `yaml:"max_request_bytes"`
	OpenRuns          *whole `yaml:"open_runs"`
	OpenRunBytes      *whole `yaml:"open_run_bytes"`
}

// whole is a whole number: YAML's own decoding would make 0 of 0.5, and with it no limit.
type whole int64

// UnmarshalYAML refuses all else.
func (w *whole) UnmarshalYAML(n *yaml.Node) error {
	if n.Tag != "!!int" {
		return fmt.Errorf("line %d: %.50q is no whole number", n.Line, n.Value)
	}
	return n.Decode((*int64)(w))
}

// maxLimit keeps arithmetic on limits far from overflow.
const maxLimit = 1 << 50

// over returns the limits of the entry, and l's where it has none.
func (e entry) over(l Limits) (Limits, error) {
	for _, f := range []struct {
		name string
		from *whole
		to   *int64
	}{
		{Requests.String(), e.RequestsPerSecond, &l.RequestsPerSecond},
		{Events.String(), e.EventsPerSecond, &l.EventsPerSecond},
		{Bytes.String(), e.BytesPerSecond, &l.BytesPerSecond},
		{Streams.String(), e.ConcurrentStreams, &l.ConcurrentStreams},
		{Reads.String(), e.ConcurrentReads, &l.ConcurrentReads},
		{"max_event_bytes", e.MaxEventBytes, &l.MaxEventBytes},
		{"max_input_bytes", e.MaxInputBytes, &l.MaxInputBytes},
		{"max_request_bytes", e.MaxRequestBytes, &l.MaxRequestBytes},
		{"open_runs", e.OpenRuns, &l.OpenRuns},
		{"open_run_bytes", e.OpenRunBytes, &l.OpenRunBytes},
	} {
		if f.from == nil {
			continue
		}
		if *f.from < 0 || *f.from > maxLimit {
			return Limits{}, fmt.Errorf("%s is %d: it must be between 0 (no limit) and %d", f.name, *f.from, int64(maxLimit))
		}
		*f.to = int64(*f.from)
	}
	return l, nil
}

// file is a file's content, resolved: every entry is whole.
type file struct {
	fallback Limits
	tenants  map[string]Limits
}

func (f *file) of(tenant string) Limits {
	if l, ok := f.tenants[tenant]; ok {
		return l
	}
	return f.fallback
}

// parse reads a file of quotas. Anything that is unknown, given twice or out of range makes the whole file an error: a
// limit that is silently ignored is worse than an old one.
func parse(text []byte, stage Limits) (*file, error) {
	var raw struct {
		Default entry            `yaml:"default"`
		Tenants map[string]entry `yaml:"tenants"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	switch err := d.Decode(&raw); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: it is empty; a file without limits is default: {}", ErrFile)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", ErrFile, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it has more than one YAML document", ErrFile)
	}
	fallback, err := raw.Default.over(stage)
	if err != nil {
		return nil, fmt.Errorf("%w: default: %w", ErrFile, err)
	}
	f := &file{fallback: fallback, tenants: make(map[string]Limits, len(raw.Tenants))}
	for tenant, e := range raw.Tenants {
		if err := record.ValidateID(tenant); err != nil {
			return nil, fmt.Errorf("%w: tenant %.100q: %w", ErrFile, tenant, err)
		}
		if f.tenants[tenant], err = e.over(fallback); err != nil {
			return nil, fmt.Errorf("%w: tenant %.100q: %w", ErrFile, tenant, err)
		}
	}
	return f, nil
}
