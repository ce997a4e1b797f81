package agents

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// find returns the value at a JSON Pointer in a valid JSON document, or nil if there is no such value.
func find(doc json.RawMessage, pointer string) json.RawMessage {
	for part := range strings.SplitSeq(pointer[1:], "/") {
		switch name := agui.UnescapePointer.Replace(part); {
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
