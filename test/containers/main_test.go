package containers

import (
	"flag"
	"os"
	"testing"

	"github.com/skeinhq/skein/test/parts/partstest"
)

var (
	long     = flag.Bool("containers.long", false, "run all of it")
	standIns = flag.Bool("containers.standins", false, "build stand-ins for images that cannot be pulled")
	before   = flag.String("containers.before", "HEAD~", "the `COMMIT` that the upgrade starts from")
)

func TestMain(m *testing.M) {
	partstest.ExitShort("a container engine")
	os.Exit(m.Run())
}
