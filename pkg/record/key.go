package record

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/agui"
)

// MaxIDBytes is the length limit of tenant, thread and run ids.
const MaxIDBytes = 512

// ErrInvalidID is returned for a tenant, thread or run id that is not allowed. The error text has the reason.
var ErrInvalidID = errors.New("invalid id")

// ErrInvalidKey is returned for a record's key that this package did not write.
var ErrInvalidKey = errors.New("invalid key")

// FenceKey is the key of fence records on skein.runs. It has one part and run keys have three, so no run can have it.
const FenceKey = "fence"

// ProgressKey is the key of progress records on skein.runs (EncodeProgress). As the topic is compacted, one remains on
// each partition. No run can have this key.
const ProgressKey = "progress"

// ValidateID returns an error unless s is a valid id: 1 to 512 bytes of UTF-8 and neither "." nor "..", which HTTP
// clients and proxies remove from paths. Every other character is allowed, even a slash and NUL.
func ValidateID(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidID)
	case len(s) > MaxIDBytes:
		return fmt.Errorf("%w: it has %d bytes, %d are allowed", ErrInvalidID, len(s), MaxIDBytes)
	case s == "." || s == "..":
		return fmt.Errorf("%w: %q cannot stand in a URL path", ErrInvalidID, s)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: it is not UTF-8", ErrInvalidID)
	}
	return nil
}

// ValidateNewID returns an error unless s is an id that a new thread or run may have: a valid one without control
// characters, which nobody sees and which terminals and logs obey.
func ValidateNewID(s string) error {
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Errorf("%w: it has a control character at byte %d", ErrInvalidID, i)
	}
	return ValidateID(s)
}

// EscapeKeyPart escapes one part of a key: A-Z a-z 0-9 - . _ ~ stay, every other byte becomes %XX in upper case. The
// same part gives the same bytes in every language, as partitions depend on it.
func EscapeKeyPart(s string) string {
	return string(appendKeyPart(make([]byte, 0, len(s)+8), s))
}

func appendKeyPart(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; unreserved(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}

// UnescapeKeyPart is the reverse of EscapeKeyPart. It accepts only the output of EscapeKeyPart: a lower-case or
// unnecessary escape would give one id two keys, and so two partitions.
func UnescapeKeyPart(s string) (string, error) {
	id := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			id = append(id, s[i])
			continue
		}
		c, err := strconv.ParseUint(s[i+1:min(i+3, len(s))], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%w: %q is not escaped as its text is", ErrInvalidKey, s)
		}
		id = append(id, byte(c))
		i += 2
	}
	if string(appendKeyPart(make([]byte, 0, len(s)), string(id))) != s {
		return "", fmt.Errorf("%w: %q is not escaped as its text is", ErrInvalidKey, s)
	}
	return string(id), nil
}

// ThreadKey returns the key of a thread's records on skein.events, which chooses the thread's partition.
func ThreadKey(tenant, thread string) (string, error) {
	return joinKey([]string{"tenant", "thread"}, tenant, thread)
}

// RunKey returns the key of a run record on skein.runs.
func RunKey(tenant, thread, run string) (string, error) {
	return joinKey([]string{"tenant", "thread", "run"}, tenant, thread, run)
}

// SnapshotKey returns the key of a branch's snapshot on skein.snapshots; kind is MESSAGES_SNAPSHOT or STATE_SNAPSHOT.
func SnapshotKey(tenant, thread, branch string, kind agui.Type) (string, error) {
	if kind != "MESSAGES_SNAPSHOT" && kind != "STATE_SNAPSHOT" {
		return "", fmt.Errorf("making key: %q is not a kind of snapshot", kind)
	}
	return joinKey([]string{"tenant", "thread", "branch", "kind"}, tenant, thread, branch, string(kind))
}

func joinKey(names []string, parts ...string) (string, error) {
	b := make([]byte, 0, 96)
	for i, p := range parts {
		if err := ValidateID(p); err != nil {
			return "", fmt.Errorf("making key: %s: %w", names[i], err)
		}
		if i > 0 {
			b = append(b, '/')
		}
		b = appendKeyPart(b, p)
	}
	return string(b), nil
}

// SplitKey returns the ids of a key: tenant and thread, then run, or branch and kind, depending on the topic. The
// caller checks their number. The error is ErrInvalidKey, or ErrInvalidID for a well escaped part that is no id.
func SplitKey(key string) ([]string, error) {
	parts := strings.Split(key, "/")
	for i, p := range parts {
		id, err := UnescapeKeyPart(p)
		if err == nil {
			err = ValidateID(id)
		}
		if err != nil {
			return nil, fmt.Errorf("reading key: part %d: %w", i+1, err)
		}
		parts[i] = id
	}
	return parts, nil
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}
