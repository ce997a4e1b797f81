package cli

import (
	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/pkg/record"
)

// rangeFlag is the flag that selects a range of skein.events; the zero value selects all of it.
type rangeFlag struct{ record.Range }

func (s *rangeFlag) flag(f *pflag.FlagSet) {
	f.VarP(s, "range", "o", "only events from FROM up to but excluding TO, as `FROM:TO`; each is a position (3:1024), "+
		"a time (@2026-09-17T12:00:00Z), start or end (fixed when the command starts)")
}

// String implements pflag.Value.
func (s *rangeFlag) String() string {
	if s.Range == (record.Range{}) {
		return ""
	}
	return s.Range.String()
}

// Set implements pflag.Value.
func (s *rangeFlag) Set(text string) (err error) {
	s.Range, err = record.ParseRange(text)
	return err
}

// Type implements pflag.Value.
func (s *rangeFlag) Type() string { return "FROM:TO" }
