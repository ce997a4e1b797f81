package partstest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// skippedVariable names a file to which Note appends a line. make check prints this file at its end.
const skippedVariable = "SKEIN_TEST_SKIPPED"

// Skip skips a test because a part is missing, and records the reason for the list at the end of make check. With
// CI=true, where every part must be present, it fails the test.
func Skip(tb testing.TB, reason string) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatal(reason + " (with CI=true this is a failure)")
	}
	Note(tb, reason)
	tb.Skip("SKIP: " + reason)
}

// SkipShort skips a test if -short is set, and records what the test needs besides Go or why it is long. It never fails
// a test.
func SkipShort(tb testing.TB, needs string) {
	tb.Helper()
	if testing.Short() {
		Note(tb, needs)
		tb.Skip("-short is set: this needs " + needs)
	}
}

// ExitShort is SkipShort for all tests of a package. TestMain calls it first. With -short it exits the process.
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

// Note adds to the list at the end of make check what a test leaves out although it continues.
func Note(tb testing.TB, reason string) {
	tb.Helper()
	if err := note(reason); err != nil {
		tb.Error(err)
	}
}

// note writes one line per reason, without the test's name. Packages run at the same time, so it writes a line with a
// single write.
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
