package clickhousetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVerify_RefusesAnotherPackage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tgz")
	if err := os.WriteFile(path, []byte("not the package"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verify(path); err == nil || !strings.Contains(err.Error(), "its hash is") {
		t.Errorf("error %v", err)
	}
}
