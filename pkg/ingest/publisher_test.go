package ingest

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Copies of values that share an allocation do not touch each other.
func TestPublisher_CopiesStandAlone(t *testing.T) {
	rng, p := rand.New(rand.NewPCG(1, 1)), &publisher{}
	var copies [][]byte
	for i := range 1000 {
		value := bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(6<<10))
		one := p.copyOf(value, rng.IntN(3)*3<<10)
		value[0]++
		_ = append(one, 'x')
		copies = append(copies, one)
	}
	for i, one := range copies {
		if !bytes.Equal(one, bytes.Repeat([]byte{byte(i)}, len(one))) {
			t.Fatalf("copy %d of %d bytes has changed", i, len(one))
		}
	}
}
