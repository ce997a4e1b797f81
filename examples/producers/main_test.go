package producers

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/test/parts/partstest"
)

// built is the folder of what the tests compile.
var built string

func TestMain(m *testing.M) {
	partstest.ExitShort("clients of Kafka in other languages")
	var err error
	if built, err = os.MkdirTemp("", "skein-producers-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(built); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}
