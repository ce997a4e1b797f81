// Package seedtest provides the seeds of randomised tests.
package seedtest

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// New returns a seed and logs it. The seed differs at each call unless SKEIN_TEST_SEED is set; then it depends only on
// that variable and the test's name. "make check" sets the variable, so that a failed test has the same histories when
// it runs again.
func New(tb testing.TB) uint64 {
	tb.Helper()
	set := os.Getenv("SKEIN_TEST_SEED")
	if set == "" {
		set = strconv.FormatUint(rand.Uint64(), 10)
	}
	tb.Logf("SKEIN_TEST_SEED=%s has the same histories again", set)
	h := fnv.New64a()
	_, _ = h.Write([]byte(set + "\x00" + tb.Name())) // a hash never returns an error
	return h.Sum64()
}
