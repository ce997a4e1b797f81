package process

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds commands into a folder. Packages are named as for "go build", from the folder of the test.
func Build(dir string, flags []string, packages ...string) error {
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, flags...)
	if out, err := exec.Command("go", append(args, packages...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("building the commands: %w: %s", err, out)
	}
	return nil
}
