package parts

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/test/parts/partstest"
)

// wheel makes a package named odd with one module, and returns its folder.
func wheel(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"odd.py":                     "answer = 42\n",
		"odd-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"odd-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n",
		"odd-1.0.dist-info/RECORD":   "odd.py,,\nodd-1.0.dist-info/WHEEL,,\nodd-1.0.dist-info/METADATA,,\nodd-1.0.dist-info/RECORD,,\n",
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "odd-1.0-py3-none-any.whl"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Nothing is asked of PyPI here: the package lies in a folder.
func TestPython_RefusesWhatIsNotPinned(t *testing.T) {
	partstest.SkipShort(t, "Python")
	t.Setenv(CacheVariable, t.TempDir())
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", wheel(t))
	_, err := Python{Name: "test", Requirements: fmt.Appendf(nil, "odd==1.0 --hash=sha256:%s\n",
		strings.Repeat("0", 64))}.Interpreter(t.Context())
	if missing := new(UnavailableError); errors.As(err, &missing) && strings.Contains(missing.Reason, "virtual environment") &&
		os.Getenv("CI") != "true" {
		t.Skipf("SKIP: %v", err)
	}
	if !errors.Is(err, ErrChecksum) {
		t.Errorf("error is %v, want ErrChecksum, for which no test is skipped", err)
	}
}
