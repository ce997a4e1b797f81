package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skeinhq/skein/test/conformance"
)

// spelling is how a value is written as JSON. None of it changes what the value is. The zero spelling is the shortest,
// with members by name.
type spelling struct {
	// escapes: of the characters that need none, one in so many is escaped; 0 is none.
	escapes int
	numbers bool // 1 as 1.0, 1e0, 10E-1
	spaces  bool // and line feeds between tokens
	order   bool // of members
	repeats bool // members that stand there before, with another value
	rnd     *rand.Rand
}

func (g gen) spelling() spelling {
	if g.plain || !g.chance(25) {
		return spelling{}
	}
	return spelling{
		escapes: pick(g, []int{0, 0, 7, 1}), numbers: g.chance(40), spaces: g.chance(40), order: g.chance(40), repeats: g.chance(12),
		rnd: rand.New(rand.NewPCG(uint64(g.n(1<<16)), 0)),
	}
}

// encode writes a value as JSON in its shortest form.
func encode(v any) json.RawMessage { return spelling{}.encode(v) }

func (s spelling) encode(v any) json.RawMessage {
	return s.gap(s.value(s.gap(nil), v))
}

func (s spelling) value(dst []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return s.text(dst, v)
	case obj:
		return s.object(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = s.gap(s.value(s.gap(dst), e))
		}
		return append(dst, ']')
	case int:
		return s.number(dst, strconv.Itoa(v))
	case float64:
		return s.number(dst, strconv.FormatFloat(v, 'g', -1, 64))
	case json.Number:
		return s.number(dst, string(v))
	case json.RawMessage:
		return append(dst, v...)
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding a generated value: %v", err))
	}
	return append(dst, b...)
}

func (s spelling) object(dst []byte, o obj) []byte {
	type member struct {
		name  string
		value any
	}
	var members []member
	for _, name := range slices.Sorted(maps.Keys(o)) {
		members = append(members, member{name, o[name]})
	}
	if s.order {
		s.rnd.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	}
	if s.repeats {
		for i := len(members) - 1; i >= 0; i-- {
			if s.rnd.IntN(4) == 0 {
				members = slices.Insert(members, s.rnd.IntN(i+1), member{members[i].name, anyValues[s.rnd.IntN(len(anyValues))]})
			}
		}
	}
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.gap(s.text(s.gap(dst), m.name))
		dst = s.gap(s.value(s.gap(append(dst, ':')), m.value))
	}
	return append(dst, '}')
}

// gap is white space between two tokens.
func (s spelling) gap(dst []byte) []byte {
	if !s.spaces || s.rnd.IntN(3) > 0 {
		return dst
	}
	gaps := []string{" ", "\n", "\t", "\r\n", "  \n "}
	return append(dst, gaps[s.rnd.IntN(len(gaps))]...)
}

var shortEscapes = map[rune]byte{'"': '"', '\\': '\\', '/': '/', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

func (s spelling) text(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		if digits, ok := strings.CutPrefix(text[i:], conformance.Half); ok && len(digits) >= 4 {
			dst = s.unit(dst, digits[:4])
			i += len(conformance.Half) + 4
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		short, hasShort := shortEscapes[r]
		needed := r < ' ' || r == '"' || r == '\\'
		more := s.escapes > 0 && s.rnd.IntN(s.escapes) == 0
		switch {
		case !needed && !more:
			dst = append(dst, text[i:i+n]...)
		case hasShort && (!more || s.rnd.IntN(2) == 0):
			dst = append(dst, '\\', short)
		case r > 0xFFFF:
			dst = s.unit(dst, fmt.Sprintf("%04X", 0xD800+(r-0x10000)>>10))
			dst = s.unit(dst, fmt.Sprintf("%04X", 0xDC00+(r-0x10000)&0x3FF))
		default:
			dst = s.unit(dst, fmt.Sprintf("%04X", r))
		}
		i += n
	}
	return append(dst, '"')
}

// unit writes a UTF-16 unit as an escape, its digits in either case.
func (s spelling) unit(dst []byte, digits string) []byte {
	if s.escapes == 0 || s.rnd.IntN(2) == 0 {
		digits = strings.ToLower(digits)
	}
	return append(append(dst, `\u`...), digits...)
}

// number writes a number otherwise than it is given: with the point elsewhere and an exponent that makes up for it.
func (s spelling) number(dst []byte, n string) []byte {
	if !s.numbers || s.rnd.IntN(3) == 0 {
		return append(dst, n...)
	}
	whole, negative := strings.CutPrefix(n, "-")
	mantissa, e, _ := strings.Cut(strings.ToLower(whole), "e")
	exponent := 0
	if e != "" {
		var err error
		if exponent, err = strconv.Atoi(e); err != nil {
			panic(fmt.Sprintf("a generated number: %v", err))
		}
	}
	before, after, _ := strings.Cut(mantissa, ".")
	digits := before + after
	exponent -= len(after)
	if strings.Trim(digits, "0") == "" { // zero, of either sign
		return append(dst, []string{"0", "-0", "0.0", "-0.0", "0e5", "0E-7"}[s.rnd.IntN(6)]...)
	}
	digits = strings.TrimLeft(digits, "0")
	for range s.rnd.IntN(3) { // 10e-1
		digits += "0"
		exponent--
	}
	if negative {
		dst = append(dst, '-')
	}
	at := 1 + s.rnd.IntN(len(digits)) // of the point
	exponent += len(digits) - at
	dst = append(dst, digits[:at]...)
	if at < len(digits) {
		dst = append(append(dst, '.'), digits[at:]...)
	}
	if exponent == 0 && s.rnd.IntN(2) == 0 {
		return dst
	}
	return fmt.Appendf(dst, []string{"e%d", "E%d", "e%+d", "E%+03d"}[s.rnd.IntN(4)], exponent)
}
