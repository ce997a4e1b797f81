package app

import (
	_ "embed" // the list of settings
	"strings"
)

// settingsFile lists the settings of every binary of Skein, sorted, one line "BINARY SETTING" each. It exists because a binary
// lacks the flags of the others; a test of each binary compares its lines with its flags.
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
