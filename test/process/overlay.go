package process

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Overlay returns a file for "go build -overlay" that builds a source file with one place changed. The place must be there once.
func Overlay(tb testing.TB, file, before, after string) string {
	tb.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		tb.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if n := strings.Count(string(source), before); n != 1 {
		tb.Fatalf("the place to mutate is %d times in %s: bring the mutant up to date", n, file)
	}
	dir := tb.TempDir()
	mutated, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(source), before, after, 1)), 0o600); err != nil {
		tb.Fatal(err)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return overlay
}
