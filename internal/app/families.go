package app

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/pkg/agui"
)

// KeepEventsFlag adds the flag that says which families of events run records keep.
func KeepEventsFlag(f *pflag.FlagSet, families *agui.Families) {
	f.TextVar(families, "keep-events", *families, "`FAMILIES` of events to keep in run records: "+
		strings.Join(agui.FamilyNames(), ", ")+"; or none")
}
