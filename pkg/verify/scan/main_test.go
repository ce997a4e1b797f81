package scan_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Docker's test containers keep one connection for as long as the process lives.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}
