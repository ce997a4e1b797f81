package app

import (
	_ "embed" // the list of settings
	"strings"
)

// settingsFile lists the settings of every binary of Skein, a line "BINARY SETTING" each, in order. A
// binary cannot ask another one for its flags; a test of each holds its lines to the flags that it has.
//
//go:embed settings.txt
var settingsFile string

// allSettings are the settings of all binaries.
func allSettings() map[string]bool {
	known := make(map[string]bool)
	for line := range strings.Lines(settingsFile) {
		if _, setting, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			known[setting] = true
		}
	}
	return known
}
