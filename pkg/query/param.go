package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

// A parameter that is empty is as one that is not given. What is refused is refused in one form, which
// says what is allowed.

func (c *call) badParam(name, allowed string) error {
	return badRequest(fmt.Sprintf("%s must be %s, not %.80q", name, allowed, c.Query.Get(name)))
}

// number reads a whole number within bounds, or returns fallback where there is none.
func (c *call) number(name string, fallback, low, high int) (int, error) {
	text := c.Query.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, c.badParam(name, fmt.Sprintf("a whole number from %d to %d", low, high))
	}
	return n, nil
}

// time reads a time; zero is none.
func (c *call) time(name string) (time.Time, error) {
	text := c.Query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.IsZero() { // which stands for none
		return time.Time{}, c.badParam(name, "a time such as 2026-09-17T12:00:00Z")
	}
	return t, nil
}

// flag reads what is true or false; false where there is none.
func (c *call) flag(name string) (bool, error) {
	text, err := oneOf(c, name, "true", "false")
	return text == "true", err
}

// position reads a place in skein.events; nil is none.
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

// oneOf reads one of several words; "" is none.
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
