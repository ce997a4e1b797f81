package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// checks is how many threads are generated where the command line does not say. With fewer, such as
// with -short, the summary's counts are not held to anything.
const checks = 10_000

func TestMain(m *testing.M) {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "rapid.checks" })
	if !said && !testing.Short() {
		if err := flag.Set("rapid.checks", fmt.Sprint(checks)); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(exits{m})
}

// exits prints the summary when all tests have run: go test shows it where it is run in this folder.
type exits struct{ m *testing.M }

func (e exits) Run() int {
	code := e.m.Run()
	if code == 0 { // else shrinking has counted, too
		report.print(os.Stdout)
	}
	return code
}
