package app

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// version is set by release builds: -ldflags "-X github.com/skeinhq/skein/internal/app.version=v1.2.3".
var version string

// Build is the build information of this binary.
type Build struct {
	Version string `json:"version"`
	// Revision is the commit, with "+dirty" if the tree had changes; empty if unknown.
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildInfo returns this binary's Build.
func BuildInfo() Build {
	b := Build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		dirty := false
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				dirty = s.Value == "true"
			}
		}
		if dirty && b.Revision != "" {
			b.Revision += "+dirty"
		}
	}
	b.Version = cmp.Or(b.Version, "devel")
	return b
}
