package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BinVariable names a folder with the commands, so that not every package builds them for its tests. make check
// sets it.
const BinVariable = "SKEIN_TEST_BIN"

// Commands returns a folder with the commands: the one that SKEIN_TEST_BIN names, else dir, which they are
// built into.
func Commands(dir string) (string, error) {
	bin := os.Getenv(BinVariable)
	if bin == "" {
		return dir, Build(dir, nil, "github.com/skeinhq/skein/cmd/...")
	}
	for _, name := range []string{"ingest", "compactor", "indexer", "query", "skein"} {
		// That they were looked at also tells go test when a result that it keeps is of older ones.
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("looking for the commands in %s: %w", BinVariable, err)
		}
	}
	return bin, nil
}

// Build builds commands into a folder. Packages are named as for "go build", from the folder of the test.
func Build(dir string, flags []string, packages ...string) error {
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, flags...)
	if out, err := exec.Command("go", append(args, packages...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("building the commands: %w: %s", err, out)
	}
	return nil
}
