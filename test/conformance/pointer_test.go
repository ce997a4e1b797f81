package conformance_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// JSON Pointers over decoded values, as RFC 6901 and RFC 6902 have them: what the generator draws valid patches with, and
// what documented differences are told by. The fold has its own (pkg/compact), which is what is tested.

var (
	escapeStep   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapeStep = strings.NewReplacer("~1", "/", "~0", "~")
)

func pointerOf(steps ...string) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("/" + escapeStep.Replace(s))
	}
	return b.String()
}

func stepsOf(pointer string) []string {
	if pointer == "" {
		return nil
	}
	steps := strings.Split(pointer, "/")[1:]
	for i, s := range steps {
		steps[i] = unescapeStep.Replace(s)
	}
	return steps
}

// names are what leads on from a value: an object's members, an array's indexes.
func names(v any) []string {
	switch v := v.(type) {
	case obj:
		return slices.Sorted(maps.Keys(v))
	case []any:
		all := make([]string, len(v))
		for i := range v {
			all[i] = strconv.Itoa(i)
		}
		return all
	}
	return nil
}

// member returns what one step leads to.
func member(v any, step string) (any, bool) {
	switch v := v.(type) {
	case obj:
		m, ok := v[step]
		return m, ok
	case []any:
		if i, err := strconv.Atoi(step); err == nil && 0 <= i && i < len(v) && strconv.Itoa(i) == step {
			return v[i], true
		}
	}
	return nil, false
}

// follow goes as far as the steps lead. It returns where it stands then, and the steps that are left.
func follow(v any, steps []string) (at any, left []string) {
	for i, s := range steps {
		m, ok := member(v, s)
		if !ok {
			return v, steps[i:]
		}
		v = m
	}
	return v, nil
}

// changed returns a document with the place changed that the steps lead to, whose way must exist. Containers on the way are
// changed themselves. inObject and inList change the last of them, which holds the place; inList returns what the list becomes.
func changed(doc any, steps []string, inObject func(obj, string), inList func(list []any, step string) []any) any {
	last := len(steps) == 1
	switch d := doc.(type) {
	case obj:
		if last {
			inObject(d, steps[0])
		} else {
			d[steps[0]] = changed(d[steps[0]], steps[1:], inObject, inList)
		}
	case []any:
		if last {
			return inList(d, steps[0])
		}
		i, _ := strconv.Atoi(steps[0])
		d[i] = changed(d[i], steps[1:], inObject, inList)
	}
	return doc
}

// added is RFC 6902's add.
func added(doc any, steps []string, v any) any {
	if len(steps) == 0 {
		return v
	}
	return changed(doc, steps, func(o obj, name string) { o[name] = v }, func(list []any, step string) []any {
		i, err := strconv.Atoi(step)
		if err != nil { // "-"
			i = len(list)
		}
		return slices.Insert(slices.Clip(list), i, v)
	})
}

// removed is RFC 6902's remove.
func removed(doc any, steps []string) any {
	if len(steps) == 0 {
		return nil
	}
	return changed(doc, steps, func(o obj, name string) { delete(o, name) }, func(list []any, step string) []any {
		i, _ := strconv.Atoi(step)
		return slices.Delete(slices.Clone(list), i, i+1)
	})
}

// replaced is RFC 6902's replace.
func replaced(doc any, steps []string, v any) any {
	if len(steps) == 0 {
		return v
	}
	return changed(doc, steps, func(o obj, name string) { o[name] = v }, func(list []any, step string) []any {
		i, _ := strconv.Atoi(step)
		list[i] = v
		return list
	})
}

// clone copies a value that nothing of it is shared.
func clone(v any) any {
	switch v := v.(type) {
	case obj:
		c := make(obj, len(v))
		for k, m := range v {
			c[k] = clone(m)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, m := range v {
			c[i] = clone(m)
		}
		return c
	}
	return v
}

// depth is how many containers lie in one another.
func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case obj:
		for _, m := range v {
			deepest = max(deepest, depth(m))
		}
		return deepest + 1
	case []any:
		for _, m := range v {
			deepest = max(deepest, depth(m))
		}
		return deepest + 1
	}
	return 0
}
