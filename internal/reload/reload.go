// Package reload reads files and documents again when they change: API keys, quotas, certificates, key sets of tokens. It
// polls instead of watching, because mounted secrets are swapped links, for which the events of a watch depend on the
// system.
package reload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
)

// Interval is the time between two polls of a file.
const Interval = 2 * time.Second

// Source is content that is read repeatedly. If new content cannot be read or used, the previous content stays in force.
// The methods are safe for concurrent use.
type Source struct {
	// What names the content in errors; "" leaves errors unchanged.
	What string
	// Read returns the content.
	Read func(context.Context) ([]byte, error)
	// Take puts content in force. It is not called with content that is already in force.
	Take func([]byte) error
	// Refused is called with an error of Read or Take, unless the last Load had the same error; it may be nil.
	Refused func(error)
	// Every is how often Run reads the content once some is in force; at least Interval.
	Every time.Duration
	// Failing is 1 after Read or Take has failed, else 0; it may be nil.
	Failing prometheus.Gauge
	// Reloads counts the successful calls of Take and the calls of Refused, by Outcomes; it may be nil.
	Reloads *prometheus.CounterVec

	mu     sync.Mutex
	tried  time.Time
	loaded atomic.Pointer[[sha256.Size]byte] // of the content in force
	err    error
}

// Load reads the content unless it was read after the argument since. It returns why the content is not in force, or nil.
func (s *Source) Load(ctx context.Context, since time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried.After(since) {
		return s.err
	}
	text, err := s.Read(ctx)
	sum := sha256.Sum256(text)
	if last := s.loaded.Load(); err == nil && (last == nil || *last != sum) {
		if err = s.Take(text); err == nil {
			s.loaded.Store(&sum)
			s.count(loaded)
		}
	}
	if err != nil && s.What != "" {
		err = fmt.Errorf("reading %s: %w", s.What, err)
	}
	was := s.err
	s.tried, s.err = time.Now(), err
	if err != nil && ctx.Err() != nil {
		return err
	}
	if s.Failing != nil {
		s.Failing.Set(map[bool]float64{true: 1}[err != nil])
	}
	if err != nil && s.Refused != nil && (was == nil || was.Error() != err.Error()) {
		s.Refused(err)
		s.count(refused)
	}
	return err
}

const (
	loaded  = "loaded"
	refused = "refused"
)

// Outcomes returns the labels of Source.Reloads.
func Outcomes() []string { return []string{loaded, refused} }

func (s *Source) count(outcome string) {
	if s.Reloads != nil {
		s.Reloads.WithLabelValues(outcome).Inc()
	}
}

// lastErr returns the result of the last Load that read the content.
func (s *Source) lastErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Ready returns nil once some content is in force, without waiting for a running Load, else the error of reading it.
func (s *Source) Ready() error {
	if s.loaded.Load() != nil {
		return nil
	}
	return s.lastErr()
}

// Stale returns the error of reading the content since some was in force, or nil.
func (s *Source) Stale() error {
	if s.loaded.Load() == nil {
		return nil
	}
	return s.lastErr()
}

// Run loads the content repeatedly until ctx ends. It returns nil.
func (s *Source) Run(ctx context.Context) error {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if s.loaded.Load() != nil {
				now = now.Add(-s.Every)
			}
			_ = s.Load(ctx, now) // Refused gets the error
		}
	}
}

// File returns a Source.Read for a file of at most limit bytes.
func File(path string, limit int64) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
		return Bounded(f, limit)
	}
}

// Bounded reads r to its end. It returns an error if r has more than limit bytes.
func Bounded(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return text, err
}

// ErrEmpty is the error that YAML returns for an empty file.
var ErrEmpty = errors.New("it is empty")

// The decoder names Go types, of which who writes a file knows nothing.
var (
	unknownKey = regexp.MustCompile(`field (.+?) not found in type .*`)
	noDuration = regexp.MustCompile("cannot unmarshal !!\\w+ (`.*?`) into time.Duration")
)

// YAML decodes a file with one YAML document into a struct. It returns an error of one line if the file is empty or has a
// second document, or if members are unknown or repeated.
func YAML(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	switch err := d.Decode(into); {
	case errors.Is(err, io.EOF):
		return ErrEmpty
	case err != nil:
		text := unknownKey.ReplaceAllString(err.Error(), "$1 is not a key")
		text = noDuration.ReplaceAllString(text, "$1 is not a duration such as 500ms, 90s or 24h")
		return errors.New(strings.ReplaceAll(text, "\n", " "))
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one YAML document")
	}
	return nil
}
