package query

import (
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
)

// An empty parameter counts as absent. Every refusal has the same form and lists the allowed values.

func (c *call) badParam(name, allowed string) error {
	return &search.ParameterError{Param: name, Takes: allowed, Value: c.Query.Get(name)}
}

// number reads a whole number from low to high, or returns fallback if the parameter is absent.
func (c *call) number(name string, fallback, low, high int) (int, error) {
	return search.ParseNumber(c.Query, name, fallback, low, high)
}

// limit reads the number of entries of a page.
func (c *call) limit() (int, error) { return c.number("limit", 100, 1, 1000) }

// time reads an RFC 3339 time. It returns the zero time if the parameter is absent.
func (c *call) time(name string) (time.Time, error) {
	text := c.Query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.IsZero() { // zero means absent
		return time.Time{}, c.badParam(name, "a time such as 2026-09-17T12:00:00Z")
	}
	return t, nil
}

// flag reads true or false. It returns false if the parameter is absent.
func (c *call) flag(name string) (bool, error) {
	text, err := oneOf(c, name, "true", "false")
	return text == "true", err
}

// position reads a position in skein.events. It returns nil if the parameter is absent.
func (c *call) position(name string) (*record.Position, error) {
	text := c.Query.Get(name)
	if text == "" {
		return nil, nil
	}
	p, err := record.ParsePosition(text)
	if err != nil {
		return nil, c.badParam(name, "a position such as 3:1024")
	}
	return &p, nil
}

// oneOf reads one of the allowed words. It returns "" if the parameter is absent.
func oneOf[T ~string](c *call, name string, allowed ...T) (T, error) {
	text := T(c.Query.Get(name))
	if text == "" || slices.Contains(allowed, text) {
		return text, nil
	}
	words := make([]string, len(allowed))
	for i, word := range allowed {
		words[i] = string(word)
	}
	last := len(words) - 1
	return "", c.badParam(name, strings.Join(words[:last], ", ")+" or "+words[last])
}
