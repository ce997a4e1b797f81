package problem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// ContentType is the media type of a problem document.
const ContentType = "application/problem+json"

// Problem is one problem document.
type Problem struct {
	// Type is a URI that names the kind of problem; empty: "about:blank", the status says it all.
	Type string
	// Status is the HTTP status.
	Status int
	// Title is a short text that is the same for every occurrence; empty: the status's own.
	Title string
	// Detail says what happened this time and what the caller can do.
	Detail string
	// Extensions are further members. Names are camelCase; those of RFC 9457 itself are not allowed.
	Extensions map[string]any
}

// MarshalJSON writes the members in a fixed order: type where there is one, status, title, detail, then the extensions by name.
func (p Problem) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	member := func(name string, v any) error {
		if b.Len() == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(name))
		b.WriteByte(':')
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("encoding problem member %s: %w", name, err)
		}
		b.Truncate(b.Len() - 1) // Encode ends with a line feed
		return nil
	}
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	if p.Type != "" {
		if err := member("type", p.Type); err != nil {
			return nil, err
		}
	}
	if err := member("status", p.Status); err != nil {
		return nil, err
	}
	if err := member("title", p.Title); err != nil {
		return nil, err
	}
	if p.Detail != "" {
		if err := member("detail", p.Detail); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Extensions)) {
		switch name {
		case "type", "status", "title", "detail", "instance":
			return nil, fmt.Errorf("encoding problem: %q is not an extension", name)
		}
		if err := member(name, p.Extensions[name]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// atOnce is the largest problem that keeps the connection: net/http begins a larger answer while its handler works, and waits before that for the body of the
// request, which may never come, unless the connection is closed behind the answer.
const atOnce = 1 << 10

// Write answers with the problem. Headers that are set before stay (Retry-After, Allow).
func Write(w http.ResponseWriter, p Problem) {
	body, err := p.MarshalJSON()
	if err != nil { // an extension that is not JSON: a mistake of the program, never of the caller
		body, _ = Problem{Status: http.StatusInternalServerError, Detail: err.Error()}.MarshalJSON()
		p.Status = http.StatusInternalServerError
	}
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if len(body) > atOnce {
		h.Set("Connection", "close")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the caller is gone: there is nobody left to tell
}
