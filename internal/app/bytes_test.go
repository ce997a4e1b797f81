package app

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestBytesVar_TakesPlainNumbersAndUnits(t *testing.T) {
	for text, want := range map[string]struct {
		n    int
		said string
	}{
		"0": {0, "0"}, "1000": {1000, "1000"}, "1024": {1024, "1KiB"}, "16777216": {16 << 20, "16MiB"},
		"512KiB": {512 << 10, "512KiB"}, "256MiB": {256 << 20, "256MiB"}, "1GiB": {1 << 30, "1GiB"}, "1536MiB": {1536 << 20, "1536MiB"},
		"-1": {-1, "-1"}, // its bounds are the setting's to say
	} {
		n := 7
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		BytesVar(f, &n, "size", "")
		if err := f.Parse([]string{"--size=" + text}); err != nil || n != want.n || f.Lookup("size").Value.String() != want.said {
			t.Errorf("%s is %d, said as %s, %v; want %+v", text, n, f.Lookup("size").Value, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "1MB", "1 MiB", "1.5GiB", "1mib", "1MiBKiB", "9223372036854775807KiB", "99999999999999999999"} {
		n := 7
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		BytesVar(f, &n, "size", "")
		if err := f.Parse([]string{"--size=" + text}); err == nil || !strings.Contains(err.Error(), "1MiB") || n != 7 {
			t.Errorf("%q is %d, %v", text, n, err)
		}
	}
}
