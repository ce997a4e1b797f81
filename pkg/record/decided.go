package record

import "fmt"

// EncodeDecided returns the metadata that compactors commit with a group's offset: the first offset of the
// partition of skein.events about which nothing is decided, and the partition count that it belongs to.
func EncodeDecided(offset int64, partitions int32) string {
	return fmt.Sprintf("skein1 p=%d n=%d", offset, partitions)
}

// DecodeDecided reads it. What is not of that form is an error: a guess would have events decided twice.
func DecodeDecided(metadata string) (offset int64, partitions int32, err error) {
	if _, err := fmt.Sscanf(metadata, "skein1 p=%d n=%d", &offset, &partitions); err != nil {
		return 0, 0, fmt.Errorf("reading offset metadata %q: %w", metadata, err)
	}
	return offset, partitions, nil
}
