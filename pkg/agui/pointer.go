package agui

import "strings"

// EscapePointer and UnescapePointer convert a name to a reference token of a JSON Pointer (RFC 6901), and back.
var (
	EscapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
	UnescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
)
