package app

import (
	_ "embed" // the list of settings
	"strings"
)

// settingsFile lists the settings of every binary of Skein, one line "BINARY SETTING" each, sorted. A binary does not contain the
// flags of others; a test of each binary compares its lines with its flags.
//
//go:embed settings.txt
var settingsFile string

// allSettings returns the settings of all binaries.
func allSettings() map[string]bool {
	known := make(map[string]bool)
	for line := range strings.Lines(settingsFile) {
		if _, setting, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			known[setting] = true
		}
	}
	return known
}
