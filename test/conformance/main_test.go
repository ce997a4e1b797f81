package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// checks is how many threads are generated if the command line does not say, shortChecks with -short.
const (
	checks      = 700
	shortChecks = 50
)

// demanding is how many it takes for the summary's counts to be held to something.
const demanding = 10_000

func TestMain(m *testing.M) {
	flag.Parse()
	said := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { said[f.Name] = true })
	set := func(name string, value any) {
		if said[name] {
			return
		}
		if err := flag.Set(name, fmt.Sprint(value)); err != nil {
			panic(err)
		}
	}
	if testing.Short() {
		set("rapid.checks", 5*shortChecks) // of which rapid takes a fifth
	} else {
		set("rapid.checks", checks)
	}
	set("rapid.seed", time.Now().UnixNano()) // rapid tells its own where a test fails only
	goleak.VerifyTestMain(exits{m})
}

// exits prints the summary when all tests have run: go test shows it where it is run in this folder.
type exits struct{ m *testing.M }

func (e exits) Run() int {
	code := e.m.Run()
	if code == 0 { // else shrinking has counted, too
		report.print(os.Stdout)
	}
	fmt.Printf("generated with -rapid.seed=%v\n", flag.Lookup("rapid.seed").Value)
	return code
}
