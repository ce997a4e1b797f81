package app

import (
	"runtime"
	"runtime/debug"
)

// version is set by release builds: -ldflags "-X github.com/skeinhq/skein/internal/app.version=v1.2.3".
var version string

// Build tells what this binary was built from.
type Build struct {
	Version string `json:"version"`
	// Revision is the commit, with "+dirty" where the tree had changes; empty if unknown.
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildInfo returns this binary's Build.
func BuildInfo() Build {
	b := Build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b.orDevel()
	}
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
	return b.orDevel()
}

func (b Build) orDevel() Build {
	if b.Version == "" {
		b.Version = "devel"
	}
	return b
}
