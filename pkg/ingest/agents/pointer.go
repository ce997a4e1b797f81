package agents

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// isPointer reports whether s is a JSON Pointer (RFC 6901) to a value inside a document. The pointer "", the whole
// document, is not accepted.
func isPointer(s string) bool {
	if !strings.HasPrefix(s, "/") {
		return false
	}
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || (s[i+1] != '0' && s[i+1] != '1')) {
			return false
		}
	}
	return true
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// find returns the value at a pointer in a valid document, or nil if there is none.
func find(doc json.RawMessage, pointer string) json.RawMessage {
	for part := range strings.SplitSeq(pointer[1:], "/") {
		switch name := unescape.Replace(part); {
		case agui.IsObject(doc):
			doc = agui.Lookup(doc, name)
		case agui.IsArray(doc):
			doc = element(doc, name)
		default:
			return nil
		}
		if doc == nil {
			return nil
		}
	}
	return doc
}

func element(list json.RawMessage, index string) json.RawMessage {
	n, err := strconv.ParseUint(index, 10, 31)
	if err != nil || (len(index) > 1 && index[0] == '0') {
		return nil
	}
	for v := range agui.Elements(list) {
		if n == 0 {
			return v
		}
		n--
	}
	return nil
}
