package app

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// bytesFlag is a number of bytes, without a unit or in KiB, MiB or GiB.
type bytesFlag int

// BytesVar adds a flag for a number of bytes; *p is its default.
func BytesVar(f *pflag.FlagSet, p *int, name, usage string) {
	f.Var((*bytesFlag)(p), name, usage)
}

var units = []struct {
	name  string
	bytes int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String implements pflag.Value, with the largest unit that gives a whole number.
func (b *bytesFlag) String() string {
	for _, u := range units {
		if n := int(*b); n != 0 && n%u.bytes == 0 {
			return strconv.Itoa(n/u.bytes) + u.name
		}
	}
	return strconv.Itoa(int(*b))
}

// Set implements pflag.Value.
func (b *bytesFlag) Set(s string) error {
	number, unit := s, 1
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			number, unit = rest, u.bytes
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n > math.MaxInt/unit || n < math.MinInt/unit {
		return fmt.Errorf("%q is not a size: write bytes, such as 1048576 or 1MiB", s)
	}
	*b = bytesFlag(n * unit)
	return nil
}

// Type implements pflag.Value.
func (b *bytesFlag) Type() string { return "bytes" }
