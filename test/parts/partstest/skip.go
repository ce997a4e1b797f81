package partstest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// skippedVariable names a file that Note appends a line to; make check prints it at its end.
const skippedVariable = "SKEIN_TEST_SKIPPED"

// Skip skips a test for want of a part, and notes what would bring it in for the list at the end of make check. With CI=true, where every
// part has to be there, the test fails.
func Skip(tb testing.TB, reason string) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatal(reason + " (with CI=true this is a failure)")
	}
	Note(tb, reason)
	tb.Skip("SKIP: " + reason)
}

// SkipShort skips a test with -short, and notes what the test needs beside Go or why it is long. It never fails a test.
func SkipShort(tb testing.TB, needs string) {
	tb.Helper()
	if testing.Short() {
		Note(tb, needs)
		tb.Skip("-short is set: this needs " + needs)
	}
}

// ExitShort is SkipShort for all tests of a package. TestMain calls it first: with -short it ends the process.
func ExitShort(need string) {
	flag.Parse()
	if !testing.Short() {
		return
	}
	if err := note(need); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Note puts into the list at the end of make check what a test leaves out that goes on without it.
func Note(tb testing.TB, reason string) {
	tb.Helper()
	if err := note(reason); err != nil {
		tb.Error(err)
	}
}

// note writes one line for each reason, whatever test. Packages run at the same time, and a line is one write.
func note(reason string) error {
	path := os.Getenv(skippedVariable)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, strings.Join(strings.Fields(reason), " "))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("noting a skipped test: %w", err)
	}
	return nil
}
