package runstore

import (
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
)

// metadataJSON is a run's metadata in the store. It is stored beside each record, so that resolving a parent does not
// read whole conversations.
type metadataJSON struct {
	*fold.Metadata
	SpawnedBy agui.String `json:"spawnedBy,omitempty"`
}

func encodeMetadata(m *fold.Metadata) ([]byte, error) {
	b, err := json.Marshal(metadataJSON{m, agui.String(m.SpawnedBy)})
	if err != nil {
		return nil, fmt.Errorf("encoding metadata of run: %w", err)
	}
	return b, nil
}

func decodeMetadata(b []byte) (*fold.Metadata, error) {
	w := metadataJSON{Metadata: new(fold.Metadata)}
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("decoding metadata of run: %w", err)
	}
	w.Metadata.SpawnedBy = string(w.SpawnedBy)
	return w.Metadata, nil
}
