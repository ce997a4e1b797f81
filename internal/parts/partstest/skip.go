package partstest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// skippedVariable names a file that Note appends a line to; make check prints it at its end.
const skippedVariable = "SKEIN_TEST_SKIPPED"

// Skip skips a test for want of a part, and notes what would bring it in for the list at the end of make check. With CI=true, where every part
// has to be there, the test fails.
func Skip(tb testing.TB, reason string) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatal(reason + " (with CI=true this is a failure)")
	}
	Note(tb, reason)
	tb.Skip("SKIP: " + reason)
}

// Note puts into the list at the end of make check what a test leaves out that goes on without it.
func Note(tb testing.TB, reason string) {
	tb.Helper()
	if path := os.Getenv(skippedVariable); path != "" {
		// One line for each reason, whatever test: packages run at the same time, and a line is one write.
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, strings.Join(strings.Fields(reason), " "))
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			tb.Errorf("noting a skipped test: %v", err)
		}
	}
}
