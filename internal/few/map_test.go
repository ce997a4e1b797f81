package few

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/skeinhq/skein/internal/seedtest"
)

// A Map answers as a map does, below and above the size at which it becomes one.
func TestMap_IsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedtest.New(t), 0))
	for range 200 {
		keys := 1 + rng.IntN(3*most)
		var m Map[int, int]
		want := map[int]int{}
		for range 100 {
			if k, v := rng.IntN(keys), rng.Int(); rng.IntN(2) == 0 {
				m.Set(k, v)
				want[k] = v
			} else {
				m.Delete(k)
				delete(want, k)
			}
			for k := range keys {
				got, ok := m.Get(k)
				if v, has := want[k]; got != v || ok != has {
					t.Fatalf("of %d: got %d, %t, want %d, %t", k, got, ok, v, has)
				}
			}
			if got := m.Copy(); !maps.Equal(got, want) || m.Len() != len(want) {
				t.Fatalf("got %v of %d, want %v", got, m.Len(), want)
			}
		}
	}
}
