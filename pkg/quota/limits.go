package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/skeinhq/skein/internal/reload"
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

// names contains the limits' names in the file, in responses and in metrics.
var names = [kinds]string{"requests_per_second", "events_per_second", "bytes_per_second", "concurrent_streams", "concurrent_reads"}

// String returns the limit's key in the file.
func (k Kind) String() string { return names[k] }

// isRate reports whether the limit is a token bucket; the others count slots.
func (k Kind) isRate() bool { return k <= Bytes }

// Limits are the limits of one tenant. 0 means no limit; for sizes, it means that only the stage's own limit applies.
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

// Smaller returns the smaller of a stage's and a tenant's size limit. If tenant is 0, it returns the stage's.
func Smaller(stage int, tenant int64) int {
	if tenant > 0 && tenant < int64(stage) {
		return int(tenant)
	}
	return stage
}

// ErrFile is the error of an invalid quota file.
var ErrFile = errors.New("not a file of quotas")

// entry is one entry of the file. It maps the keys of limits to values; null keeps the default.
type entry map[string]*whole

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

// fields returns the limits by their keys in the file.
func (l *Limits) fields() map[string]*int64 {
	return map[string]*int64{
		Requests.String(): &l.RequestsPerSecond, Events.String(): &l.EventsPerSecond, Bytes.String(): &l.BytesPerSecond,
		Streams.String(): &l.ConcurrentStreams, Reads.String(): &l.ConcurrentReads,
		"max_event_bytes": &l.MaxEventBytes, "max_input_bytes": &l.MaxInputBytes, "max_request_bytes": &l.MaxRequestBytes,
		"open_runs": &l.OpenRuns, "open_run_bytes": &l.OpenRunBytes,
	}
}

// over returns a copy of l, in which the limits of the entry replace those of l.
func (e entry) over(l Limits) (Limits, error) {
	fields := l.fields()
	for _, name := range slices.Sorted(maps.Keys(e)) {
		to, n := fields[name], e[name]
		switch {
		case to == nil:
			return Limits{}, fmt.Errorf("there is no limit %.100q", name)
		case n == nil:
		case *n < 0 || *n > maxLimit:
			return Limits{}, fmt.Errorf("%s is %d: it must be between 0 (no limit) and %d", name, *n, int64(maxLimit))
		default:
			*to = int64(*n)
		}
	}
	return l, nil
}

// file is a parsed file. The limits of each tenant include the defaults.
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

// parse parses a quota file. It refuses the whole file if a member is unknown, repeated or out of range, because
// keeping the old limits is better than silently ignoring one.
func parse(text []byte, stage Limits) (*file, error) {
	var raw struct {
		Default entry            `yaml:"default"`
		Tenants map[string]entry `yaml:"tenants"`
	}
	if err := reload.YAML(text, &raw); err != nil {
		if errors.Is(err, reload.ErrEmpty) {
			err = fmt.Errorf("%w; a file without limits is default: {}", err)
		}
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
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
