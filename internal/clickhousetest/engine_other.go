//go:build !(linux && amd64)

package clickhousetest

import (
	"context"
	"testing"

	"github.com/skeinhq/skein/test/parts/partstest"
)

// fromEngine: the engine is published for other platforms in other shapes, and not for linux/arm64.
func fromEngine() (Server, error) {
	_, err := Library(context.Background())
	return Server{}, err
}

// Library would return the path of the engine's library.
func Library(context.Context) (string, error) {
	return "", none("the engine's library is for linux/amd64 only")
}

func engineLog() string { return "" }

// Restartable is an engine of a test's own. It can be killed and started again with its data, at the same address.
type Restartable struct{ Server }

// StartRestartable skips the test: there is no engine here.
func StartRestartable(tb testing.TB) *Restartable {
	tb.Helper()
	partstest.Skip(tb, "no ClickHouse engine to restart: it is for linux/amd64 only")
	return nil
}

// Kill is never called.
func (r *Restartable) Kill() {}

// Start is never called.
func (r *Restartable) Start() {}

// StartAs is never called.
func (r *Restartable) StartAs(string) {}
