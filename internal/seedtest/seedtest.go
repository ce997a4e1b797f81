// Package seedtest gives tests the seed of their random histories.
package seedtest

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// New returns a seed and logs it: another one at each call, or where SKEIN_TEST_SEED is set, the same at each run of a test of that name.
// "make check" sets it, so that a test that has failed has the same histories when it is run again.
func New(tb testing.TB) uint64 {
	tb.Helper()
	set := os.Getenv("SKEIN_TEST_SEED")
	if set == "" {
		set = strconv.FormatUint(rand.Uint64(), 10)
	}
	tb.Logf("SKEIN_TEST_SEED=%s has the same histories again", set)
	h := fnv.New64a()
	_, _ = h.Write([]byte(set + "\x00" + tb.Name())) // a hash takes everything
	return h.Sum64()
}
