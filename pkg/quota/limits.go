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

// Kind is one of the limits that are counted over all requests of a tenant.
type Kind int

// The values of Kind.
const (
	Requests Kind = iota // requests a second
	Events               // events and inputs a second
	Bytes                // bytes of events and inputs a second, decompressed
	Streams              // concurrent long requests: publishing streams, proxied runs, live streams
	Reads                // concurrent reads
	kinds
)

// names are the limits' keys in the file, names in responses and labels of metrics.
var names = [kinds]string{"requests_per_second", "events_per_second", "bytes_per_second", "concurrent_streams", "concurrent_reads"}

// String returns the limit's key in the file.
func (k Kind) String() string { return names[k] }

// isRate reports whether the limit is a token bucket; the others count slots.
func (k Kind) isRate() bool { return k <= Bytes }

// Limits are the limits of one tenant. 0 means no limit, except for sizes: there the stage's own limit applies.
type Limits struct {
	RequestsPerSecond int64
	EventsPerSecond   int64
	BytesPerSecond    int64
	ConcurrentStreams int64
	ConcurrentReads   int64
	// MaxEventBytes, MaxInputBytes and MaxRequestBytes limit one event, one RunAgentInput and one decompressed body.
	MaxEventBytes   int64
	MaxInputBytes   int64
	MaxRequestBytes int64
	// OpenRuns and OpenRunBytes apply in the compactor (partition.Quota).
	OpenRuns     int64
	OpenRunBytes int64
}

func (l *Limits) of(k Kind) int64 {
	return [kinds]int64{l.RequestsPerSecond, l.EventsPerSecond, l.BytesPerSecond, l.ConcurrentStreams, l.ConcurrentReads}[k]
}

// Smaller returns the smaller of a stage's and a tenant's size limit. A tenant's 0 means none.
func Smaller(stage int, tenant int64) int {
	if tenant > 0 && tenant < int64(stage) {
		return int(tenant)
	}
	return stage
}

// ErrFile is the error of an invalid quota file.
var ErrFile = errors.New("not a file of quotas")

// entry is one entry of the file. A nil member keeps the default.
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

// whole is an integer. YAML's own decoding would turn 0.5 into 0, which means no limit.
type whole int64

// UnmarshalYAML returns an error for any value that is not an integer.
func (w *whole) UnmarshalYAML(n *yaml.Node) error {
	if n.Tag != "!!int" {
		return fmt.Errorf("line %d: %.50q is no whole number", n.Line, n.Value)
	}
	return n.Decode((*int64)(w))
}

// maxLimit is the largest accepted limit. It prevents overflows.
const maxLimit = 1 << 50

// over returns l with the limits that the entry sets replaced.
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

// file is a parsed file: each tenant's limits include the defaults.
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

// parse parses a quota file. Anything unknown, repeated or out of range makes the whole file an error, because ignoring
// a limit silently would be worse than keeping the old one.
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
