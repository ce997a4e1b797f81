package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/reload"
)

// maxKeyFileBytes limits the size of a key file. It suffices for some 100,000 keys.
const maxKeyFileBytes = 32 << 20

// KeyFile authenticates by API keys: "Authorization: Bearer sk_…", or Header in its place. Run reloads the file with the keys'
// digests when it changes. If the file is missing or invalid, the last keys stay in force; KeyFile logs an error and sets a metric.
// Before the first valid file, it refuses every key.
type KeyFile struct {
	reload.Source

	logger  *slog.Logger
	metrics *metrics
	ring    atomic.Pointer[ring]
}

// OpenKeyFile reads the file for the first time. It logs an error of the file, which Ready then returns.
func OpenKeyFile(path string, logger *slog.Logger, reg prometheus.Registerer) *KeyFile {
	m := newMetrics(reg)
	f := &KeyFile{logger: logger, metrics: m}
	f.Source = reload.Source{
		What: "API keys of " + path, Read: reload.File(path, maxKeyFileBytes), Take: f.take, Failing: m.stale, Reloads: m.reloads,
		Refused: func(err error) {
			if f.ring.Load() == nil {
				logger.Error("API keys were not read; nobody gets in until they are", "error", err)
			} else {
				logger.Error("API keys were not read; those read before stay in force", "error", err)
			}
		},
	}
	_ = f.Load(context.Background(), time.Now()) // logged, and Ready returns it
	return f
}

// take puts the keys of a file in force.
func (f *KeyFile) take(text []byte) error {
	keys, err := ParseKeys(text)
	if err != nil {
		return err
	}
	f.ring.Store(newRing(keys))
	f.metrics.keys.Set(float64(len(keys)))
	f.logger.Info("API keys are in force", "keys", len(keys))
	return nil
}

// Authenticate implements Authenticator. Errors do not contain the key.
func (f *KeyFile) Authenticate(r *http.Request) (Identity, error) {
	id, err := f.recheck(r)
	outcome := requestKnown
	switch {
	case errors.Is(err, errNoKey):
		outcome = requestNone
	case errors.Is(err, ErrExpired):
		outcome = requestExpired
	case err != nil:
		outcome = requestUnknown
	}
	f.metrics.requests.WithLabelValues(outcome).Inc()
	return id, err
}

func (f *KeyFile) recheck(r *http.Request) (Identity, error) {
	key, err := Bearer(r)
	if err != nil {
		return Identity{}, err
	}
	if ring := f.ring.Load(); ring != nil && IsKey(key) {
		if id, ok := (*ring)[digest(key)]; ok {
			if !id.Expires.IsZero() && !time.Now().Before(id.Expires) {
				return Identity{}, ErrExpired
			}
			return id, nil
		}
	}
	return Identity{}, fmt.Errorf("%w: the API key is not known", ErrUnauthenticated)
}

var errNoKey = errors.New("there are no credentials: send Authorization: Bearer sk_…, or Skein-Authorization if " +
	"Authorization is an agent's")

// Bearer returns the bearer token of a request (RFC 6750), from Header if set, else from Authorization. It refuses repeated
// headers, because a reverse proxy and the stage could use different ones.
func Bearer(r *http.Request) (string, error) {
	values, ok := r.Header[Header]
	if !ok {
		values = r.Header["Authorization"]
	}
	if len(values) != 1 {
		return "", fmt.Errorf("%w: %w", ErrUnauthenticated, errNoKey)
	}
	scheme, token, cut := strings.Cut(values[0], " ")
	if !cut || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", fmt.Errorf("%w: %w", ErrUnauthenticated, errNoKey)
	}
	return strings.TrimLeft(token, " "), nil
}

// ring maps the digest of each key to an identity. The time of a lookup may reveal something about the digests, but no key can be
// derived from its digest.
type ring map[[sha256.Size]byte]Identity

// newRing makes a ring of keys from ParseKeys.
func newRing(keys []Key) *ring {
	r := make(ring, len(keys))
	for _, k := range keys {
		id := Identity{Tenant: k.Tenant, Name: k.Name, Scopes: k.Scopes}
		if k.Expires != nil {
			id.Expires = *k.Expires
		}
		var sum [sha256.Size]byte
		_, _ = hex.Decode(sum[:], []byte(k.SHA256)) // checked
		r[sum] = id
	}
	return &r
}
