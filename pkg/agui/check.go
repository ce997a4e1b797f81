package agui

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

func want(t Type, f Field, v []byte, what string) error {
	return malformed(t, "%s must be %s, not %s", f, what, kindOf(v))
}

func isAny(Type, Field, []byte) error { return nil }

func isNotNull(t Type, f Field, v []byte) error {
	if kindOf(v) == kindNull {
		return want(t, f, v, "anything but null")
	}
	return nil
}

// ofKind accepts the values of a JSON type.
func ofKind(k kind, what string) check {
	return func(t Type, f Field, v []byte) error {
		if kindOf(v) != k {
			return want(t, f, v, what)
		}
		return nil
	}
}

var (
	isString = ofKind(kindString, "a string")
	isObject = ofKind(kindObject, "an object")
	isBool   = ofKind(kindBool, "true or false")
)

// maxSafe is JavaScript's MAX_SAFE_INTEGER.
const maxSafe = 1<<53 - 1

// safeInt reads a number whose value is an integer within ±(2^53-1), in any notation (1e3, 1.0).
func safeInt(v []byte) (int64, bool) {
	if n := int64(0); len(v) > 0 && len(v) <= 15 { // all digits, so no copy is needed
		for i, c := range v {
			if c < '0' || c > '9' {
				break
			}
			n = 10*n + int64(c-'0')
			if i == len(v)-1 {
				return n, true
			}
		}
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, n >= -maxSafe && n <= maxSafe
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > maxSafe {
		return 0, false
	}
	return int64(n), true
}

func isTimestamp(t Type, f Field, v []byte) error {
	if kindOf(v) != kindNumber {
		return want(t, f, v, "an integer")
	}
	if _, ok := safeInt(v); !ok {
		return malformed(t, "%s must be an integer within 2^53-1, not %.40s", f, v)
	}
	return nil
}

// oneOf accepts the listed strings.
func oneOf(values ...string) check {
	return func(t Type, f Field, v []byte) error {
		if kindOf(v) == kindString && slices.Contains(values, unquote(v)) {
			return nil
		}
		return malformed(t, "%s must be one of %s, not %.60s", f, strings.Join(values, ", "), v)
	}
}

var (
	isTextRole      = oneOf("developer", "system", "assistant", "user")
	isToolRole      = oneOf("tool")
	isReasoningRole = oneOf("reasoning")
	isSubtype       = oneOf("tool-call", "message")
)

// inner adds the name of the member that contains a nested value to that value's error.
func inner(t Type, where string, err error) error {
	if err == nil {
		return nil
	}
	rule, detail := RuleSchema, err.Error()
	if m, ok := err.(*MalformedError); ok { //nolint:errorlint // made here, never wrapped
		rule, detail = m.Rule, m.Detail
	}
	return &MalformedError{Rule: rule, Type: t, Detail: where + ": " + detail}
}

// stringsOf checks the members of an object: the required ones must be strings, the optional ones strings or absent.
func stringsOf(t Type, where string, v json.RawMessage, required, optional []string) error {
	if kindOf(v) != kindObject {
		return malformed(t, "%s must be an object, not %s", where, kindOf(v))
	}
	for _, name := range required {
		if m := Lookup(v, name); kindOf(m) != kindString {
			return malformed(t, "%s.%s must be a string, not %s", where, name, kindOf(m))
		}
	}
	for _, name := range optional {
		if m := Lookup(v, name); m != nil && kindOf(m) != kindString {
			return malformed(t, "%s.%s must be a string, not %s", where, name, kindOf(m))
		}
	}
	return nil
}

func isContent(t Type, f Field, v []byte) error {
	return checkContent(t, f.String(), v)
}

// checkContent accepts a string or a list of content parts. It accepts parts of unknown types, which the client strips but a store
// must keep.
func checkContent(t Type, where string, v json.RawMessage) error {
	switch kindOf(v) {
	case kindString:
		return nil
	case kindArray:
		for part := range Elements(v) {
			if err := checkPart(t, where, part); err != nil {
				return err
			}
		}
		return nil
	default:
		return malformed(t, "%s must be a string or a list of content parts, not %s", where, kindOf(v))
	}
}

func checkPart(t Type, where string, part json.RawMessage) error {
	if kindOf(part) != kindObject {
		return malformed(t, "%s: a content part must be an object, not %s", where, kindOf(part))
	}
	switch stringOrNone(Lookup(part, "type")) {
	case "text":
		if err := stringsOf(t, where+" text part", part, []string{"text"}, []string{"id"}); err != nil {
			return err
		}
	case "image", "audio", "video", "document":
		source := Lookup(part, "source")
		if kindOf(source) != kindObject {
			return malformed(t, "%s: a media part's source must be an object, not %s", where, kindOf(source))
		}
		known, err := checkSource(t, where+" source", source)
		if err != nil || !known {
			return err
		}
		if err := stringsOf(t, where+" media part", part, nil, []string{"id"}); err != nil {
			return err
		}
	default:
		return nil // unknown: the client strips it, Skein keeps it
	}
	if kindOf(Lookup(part, "metadata")) == kindNull {
		return malformed(t, "%s: a content part's metadata must be anything but null", where)
	}
	return nil
}

// checkSource checks a source and reports whether its type is known. If it is not, the client strips the whole part, and Skein keeps it.
func checkSource(t Type, where string, source json.RawMessage) (known bool, err error) {
	switch stringOrNone(Lookup(source, "type")) {
	case "data":
		return true, stringsOf(t, where, source, []string{"value", "mimeType"}, nil)
	case "url":
		return true, stringsOf(t, where, source, []string{"value"}, []string{"mimeType"})
	case "file":
		return true, stringsOf(t, where, source, []string{"value"}, []string{"provider", "mimeType"})
	}
	return false, nil
}

// stringOrNone returns the decoded string, or "" if v is not a string.
func stringOrNone(v json.RawMessage) string {
	if kindOf(v) != kindString {
		return ""
	}
	return unquote(v)
}

func isMessages(t Type, f Field, v []byte) error {
	if kindOf(v) != kindArray {
		return want(t, f, v, "a list of messages")
	}
	if depth := MaxMessageDepth + len("["); tooDeep(v, depth) { // possible after the upgrade table
		return deeper(t, f.String(), depth)
	}
	for m := range Elements(v) {
		if err := checkMessage(t, m); err != nil {
			return err
		}
	}
	return nil
}

func isUsage(t Type, f Field, v []byte) error {
	if kindOf(v) != kindArray {
		return want(t, f, v, "a list of token usages")
	}
	for u := range Elements(v) {
		if err := stringsOf(t, "usage", u, nil, []string{"provider", "model"}); err != nil {
			return err
		}
		for _, name := range UsageCounts {
			n := Lookup(u, name)
			if n == nil {
				continue
			}
			if i, ok := safeInt(n); kindOf(n) != kindNumber || !ok || i < 0 {
				return malformed(t, "usage.%s must be an integer from 0, not %.40s", name, n)
			}
		}
	}
	return nil
}

// UsageCounts are the counts of a TokenUsage.
var UsageCounts = []string{"inputTokens", "outputTokens", "totalTokens", "reasoningTokens", "cachedInputTokens", "cacheWriteInputTokens"}

func isOutcome(t Type, f Field, v []byte) error {
	if kindOf(v) != kindObject {
		return want(t, f, v, "an object")
	}
	switch stringOrNone(Lookup(v, "type")) {
	case "success":
		if ids := Lookup(v, "pendingToolCallIds"); ids != nil {
			return stringList(t, "outcome.pendingToolCallIds", ids)
		}
	case "interrupt":
		list := Lookup(v, "interrupts")
		if kindOf(list) != kindArray {
			return malformed(t, "outcome.interrupts must be a list, not %s", kindOf(list))
		}
		n := 0
		for i := range Elements(list) {
			n++
			if err := stringsOf(t, "interrupt", i, []string{"id", "reason"},
				[]string{"message", "toolCallId", "expiresAt", "subagentRunId"}); err != nil {
				return err
			}
			for _, name := range []string{"responseSchema", "metadata"} {
				if m := Lookup(i, name); m != nil && kindOf(m) != kindObject {
					return malformed(t, "interrupt.%s must be an object, not %s", name, kindOf(m))
				}
			}
		}
		if n == 0 {
			return malformed(t, "outcome.interrupts must hold at least one interrupt")
		}
	}
	return nil
}

func isSubagentOutcome(t Type, f Field, v []byte) error {
	if kindOf(v) != kindObject {
		return want(t, f, v, "an object")
	}
	if stringOrNone(Lookup(v, "type")) == "suspended" {
		if ids := Lookup(v, "interruptIds"); ids != nil {
			return stringList(t, "outcome.interruptIds", ids)
		}
	}
	return nil
}

func stringList(t Type, where string, v json.RawMessage) error {
	if kindOf(v) != kindArray {
		return malformed(t, "%s must be a list of strings, not %s", where, kindOf(v))
	}
	for e := range Elements(v) {
		if kindOf(e) != kindString {
			return malformed(t, "%s must hold strings, not %s", where, kindOf(e))
		}
	}
	return nil
}

func isInput(t Type, f Field, v []byte) error {
	_, err := decodeInput(v, "", true)
	return inner(t, f.String(), err)
}
