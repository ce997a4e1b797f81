package kafka

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/reload"
	"github.com/skeinhq/skein/pkg/record"
)

// maxIngestKeysBytes limits the size of a file of keys.
const maxIngestKeysBytes = 64 << 10

// IngestKeys are the keys by which ingest signs the records of skein.events, from a file that Run reads again when it changes. If the new
// file is invalid, the last keys stay in force, and IngestKeys logs an error and sets a metric. A nil *IngestKeys has no keys: it signs
// nothing and requires no signature.
type IngestKeys struct {
	reload.Source

	keys atomic.Pointer[record.SigningKeys]
}

// OpenIngestKeys reads the file for the first time.
func OpenIngestKeys(path string, logger *slog.Logger, reg prometheus.Registerer) (*IngestKeys, error) {
	k := &IngestKeys{}
	stale := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_auth_ingest_keys_stale",
		Help: "1 while the file of ingest's signing keys cannot be used, and the keys before it stay in force.",
	})
	if err := reg.Register(stale); err != nil {
		return nil, err
	}
	k.Source = reload.Source{
		What: "signing keys of " + path, Read: reload.File(path, maxIngestKeysBytes), Failing: stale,
		Take: func(text []byte) error {
			keys, err := record.ParseSigningKeys(text)
			if err == nil {
				k.keys.Store(&keys)
				logger.Info("signing keys are in force", "keys", len(keys))
			}
			return err
		},
		Refused: func(err error) {
			if k.keys.Load() != nil {
				logger.Error("signing keys were not read; those read before stay in force", "error", err)
			}
		},
	}
	return k, k.Load(context.Background(), time.Now())
}

// Sign adds ingest's signature to a record that has all other headers, key and value.
func (k *IngestKeys) Sign(m *kgo.Record) {
	if k == nil {
		return
	}
	mac := record.Sign(*k.keys.Load(), m.Key, m.Headers, m.Value)
	m.Headers = append(m.Headers[:len(m.Headers):len(m.Headers)], kgo.RecordHeader{Key: record.HeaderMAC, Value: mac})
}

// Signature returns what is known of a record's signature.
func (k *IngestKeys) Signature(m *kgo.Record) record.Signature {
	var keys record.SigningKeys
	if k != nil {
		keys = *k.keys.Load()
	}
	return record.CheckSignature(keys, m.Key, m.Headers, m.Value)
}

// Refuses reports whether ingest must have written a record of skein.events and has not.
func (k *IngestKeys) Refuses(m *kgo.Record) bool {
	return k != nil && k.Signature(m) == record.SignatureWrong
}
