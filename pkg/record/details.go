package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/agui"
)

// The details of a thread: what callers set on it. The names are also the members of the patch that sets them.
const (
	DetailTitle    = "title"
	DetailArchived = "archived"
)

// DetailNames returns the names of all details.
func DetailNames() []string { return []string{DetailTitle, DetailArchived} }

// MaxTitleBytes is the length limit of a thread's title.
const MaxTitleBytes = 512

// ErrInvalidDetails is returned for a patch or a detail that is not allowed. The error text says what is.
var ErrInvalidDetails = errors.New("invalid details of a thread")

// Detail is one detail of a thread. Value is the title's text, or "true" of an archived thread; "" means that the thread does not have the
// detail.
type Detail struct{ Name, Value string }

// DecodePatch reads a JSON merge patch of a thread's details: {"title": "…" or null, "archived": true or false}, of which one may be left
// out. It returns the details that the patch names, in the order of DetailNames, or ErrInvalidDetails.
func DecodePatch(b []byte) ([]Detail, error) {
	refuse := func(format string, args ...any) ([]Detail, error) {
		return nil, fmt.Errorf("%w: %s", ErrInvalidDetails, fmt.Sprintf(format, args...))
	}
	var members map[string]json.RawMessage
	if !utf8.Valid(b) || json.Unmarshal(b, &members) != nil || members == nil {
		return refuse(`want a JSON object such as {"title": "Trip to Oslo"} or {"archived": true}`)
	}
	var details []Detail
	for _, name := range DetailNames() {
		value, ok := members[name]
		if !ok {
			continue
		}
		delete(members, name)
		if name == DetailTitle && string(value) == "null" || name == DetailArchived && string(value) == "false" {
			details = append(details, Detail{Name: name})
			continue
		}
		d, err := DecodeDetail(name, value)
		if err != nil {
			return nil, err
		}
		details = append(details, d)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		return refuse("%.64q is unknown: a patch has title, archived or both", name)
	}
	if len(details) == 0 {
		return refuse("the patch is empty: want title, archived or both")
	}
	return details, nil
}

// EncodePatch is the reverse of DecodePatch. Equal details give the same bytes.
func EncodePatch(details []Detail) []byte {
	b := []byte{'{'}
	for i, d := range details {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(agui.AppendString(b, d.Name), ':')
		switch value := EncodeDetail(d); {
		case value != nil:
			b = append(b, value...)
		case d.Name == DetailTitle:
			b = append(b, "null"...)
		default:
			b = append(b, "false"...)
		}
	}
	return append(b, '}')
}

// DecodeDetail reads the value of a detail's record on skein.runs, which has the key DetailKey. An empty value is a tombstone: the thread
// does not have the detail any more. The error is ErrInvalidDetails.
func DecodeDetail(name string, value []byte) (Detail, error) {
	d := Detail{Name: name}
	refuse := func(want string) (Detail, error) {
		return d, fmt.Errorf("%w: %s: want %s", ErrInvalidDetails, name, want)
	}
	switch {
	case len(value) == 0:
	case name == DetailTitle:
		switch err := json.Unmarshal(value, &d.Value); {
		case err != nil || string(value) == "null":
			return refuse("a text, or null to remove it")
		case strings.TrimSpace(d.Value) == "":
			return refuse("a text that is not empty, or null to remove it")
		case len(d.Value) > MaxTitleBytes:
			return refuse(fmt.Sprintf("at most %d bytes, not %d", MaxTitleBytes, len(d.Value)))
		case strings.ContainsFunc(d.Value, unicode.IsControl):
			return refuse("a text without line feeds, tabs and other control characters")
		}
	case name == DetailArchived && string(value) == "true":
		d.Value = "true"
	default:
		return refuse("true or false")
	}
	return d, nil
}

// EncodeDetail returns the value of a detail's record on skein.runs: JSON, or nil, which is a tombstone.
func EncodeDetail(d Detail) []byte {
	switch {
	case d.Value == "":
		return nil
	case d.Name == DetailTitle:
		return agui.AppendString(nil, d.Value)
	}
	return []byte(d.Value)
}

// DetailKey returns the key of a detail's record on skein.runs: tenant/thread//name. It has four parts, the third of them empty, so no
// run has it.
func DetailKey(tenant, thread, name string) (string, error) {
	key, err := ThreadKey(tenant, thread)
	if err != nil {
		return "", err
	}
	return DetailKeyOf(key, name), nil
}

// DetailKeyOf is DetailKey of the thread with this key.
func DetailKeyOf(threadKey, name string) string { return threadKey + "//" + name }

// SplitDetailKey is the reverse of DetailKey. The error is ErrInvalidKey, or ErrInvalidID for a part that is no id.
func SplitDetailKey(key string) (tenant, thread, name string, err error) {
	of, name, ok := strings.Cut(key, "//")
	parts, err := SplitKey(of)
	switch {
	case err != nil:
		return "", "", "", err
	case !ok || len(parts) != 2 || !slices.Contains(DetailNames(), name):
		return "", "", "", fmt.Errorf("%w: %q, want tenant/thread//title or tenant/thread//archived", ErrInvalidKey, key)
	}
	return parts[0], parts[1], name, nil
}
