package app

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/pkg/agui"
)

// KeepEventsFlag adds the flag of the families of events that run records keep.
func KeepEventsFlag(f *pflag.FlagSet, families *agui.Families) {
	f.TextVar(families, "keep-events", *families, "`FAMILIES` of events to keep in run records: "+
		strings.Join(agui.FamilyNames(), ", ")+"; or none")
}
