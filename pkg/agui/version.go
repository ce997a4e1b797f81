package agui

import (
	"strconv"
	"strings"
)

// ProtocolVersion is the newest version of AG-UI that this package reads, and the one that events made by Skein declare.
const ProtocolVersion = "1.1"

// Understands reports whether a declared protocolVersion has the form MAJOR.MINOR and is not newer than ProtocolVersion.
func Understands(version string) bool {
	major, minor, _ := strings.Cut(version, ".")
	a, errA := strconv.ParseUint(major, 10, 64)
	b, errB := strconv.ParseUint(minor, 10, 64)
	return errA == nil && errB == nil && (a == 0 || a == 1 && b <= 1)
}
