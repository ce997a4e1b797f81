package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// Documents name the tests that show what they say; a test that was renamed or removed takes the
// proof with it.
func TestDocs_NamedTestsAreThere(t *testing.T) {
	known := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == ".cache" || d.Name() == ".skein") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range testFunc.FindAllSubmatch(source, -1) {
			known[string(found[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, file := range markdown(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testName.FindAllStringSubmatch(string(text), -1) {
			// TestType_Behaviour is the pattern of names itself.
			if found[1] == "TestType_Behaviour" {
				continue
			}
			named++
			if !known[found[1]] {
				t.Errorf("%s names %s, which is not there", file, found[1])
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test")
	}
}
