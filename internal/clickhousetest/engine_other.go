//go:build !(linux && amd64)

package clickhousetest

// fromEngine: the engine is published for other platforms in other shapes, and not for linux/arm64.
func fromEngine() (Server, error) {
	return Server{}, none("the engine's library is for linux/amd64 only")
}

func engineLog() string { return "" }
