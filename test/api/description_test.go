package api

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/skeinhq/skein/test/parts/partstest"
)

// TestDescription_HasNoFindings lints the description with redocly's recommended rules: nothing is found that
// .redocly.lint-ignore.yaml does not name, and everything that it names is found.
func TestDescription_HasNoFindings(t *testing.T) {
	partstest.SkipShort(t, "Redocly")
	redocly := filepath.Join("node_modules", "@redocly", "cli", "bin", "cli.js")
	if _, err := os.Stat(redocly); err != nil {
		partstest.Skip(t, "no redocly: the API's description was not linted; make check fetches it with Node 20 or later")
	}
	cmd := exec.CommandContext(t.Context(), "node", redocly, "lint", "--format=json", filepath.Join("..", "..", "schemas", "openapi.json"))
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	} else if failed != nil {
		t.Logf("redocly: %v: %s", err, failed.Stderr)
	}
	var found struct {
		Totals struct {
			Errors, Warnings, Ignored int
		} `json:"totals"`
		Problems []struct {
			RuleID, Message string
			Ignored         bool
			Location        []struct{ Pointer string } `json:"location"`
		} `json:"problems"`
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range found.Problems {
		if !p.Ignored {
			t.Errorf("%s: %s %v", p.RuleID, p.Message, p.Location)
		}
	}
	if found.Totals.Errors+found.Totals.Warnings != 0 || found.Totals.Ignored != 5 {
		t.Errorf("%+v; want none but the 5 that .redocly.lint-ignore.yaml names", found.Totals)
	}
}
