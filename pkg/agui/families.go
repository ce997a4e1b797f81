package agui

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Families is a set of event families that a run record keeps unchanged, although their events fold to nothing. As text it is a
// comma-separated list of names, or "none"; as JSON a list of names. The zero value is the default: all but raw.
type Families uint8 // the set, xor byDefault

const (
	familyStep     Families = 1 << iota // STEP_*
	familySubagent                      // SUBAGENT_*
	familyCustom                        // CUSTOM
	familyMeta                          // META
	familyUnknown                       // types that no version of the protocol has
	familyRaw                           // RAW

	byDefault = familyStep | familySubagent | familyCustom | familyMeta | familyUnknown

	// NoFamilies is the empty set.
	NoFamilies = byDefault
)

// familyNames has the name of each bit.
var familyNames = []string{"step", "subagent", "custom", "meta", "unknown", "raw"}

// noFamily is the text of the empty set. An empty text could be a mistake.
const noFamily = "none"

// FamilyNames returns the names of all families, in the order in which they are written.
func FamilyNames() []string { return slices.Clone(familyNames) }

// FamiliesOf returns the set of these families, or an error for an unknown name.
func FamiliesOf(names ...string) (Families, error) {
	set := Families(0)
	for _, name := range names {
		i := slices.Index(familyNames, name)
		if i < 0 {
			return 0, fmt.Errorf("%q is no family of events: there are %s", name, strings.Join(familyNames, ", "))
		}
		set |= 1 << i
	}
	return set ^ byDefault, nil
}

// Names returns the families' names, in the order of FamilyNames.
func (f Families) Names() []string {
	names := []string{}
	for i, name := range familyNames {
		if (f^byDefault)>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// Keep reports whether events of the type are kept.
func (f Families) Keep(t Type) bool { return (f^byDefault)&familyOf(t) != 0 }

// familyOf returns the family of a type, or 0 if its events fold to something.
func familyOf(t Type) Families {
	switch t {
	case StepStarted, StepFinished:
		return familyStep
	case SubagentStarted, SubagentFinished, SubagentError:
		return familySubagent
	case Custom:
		return familyCustom
	case Meta:
		return familyMeta
	case Raw:
		return familyRaw
	}
	if t.Known() || t.thinking() {
		return 0
	}
	return familyUnknown
}

// String returns the text.
func (f Families) String() string {
	if names := f.Names(); len(names) > 0 {
		return strings.Join(names, ",")
	}
	return noFamily
}

// MarshalText implements encoding.TextMarshaler.
func (f Families) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Families) UnmarshalText(text []byte) (err error) {
	names := []string{}
	if string(text) != noFamily {
		for name := range strings.SplitSeq(string(text), ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	*f, err = FamiliesOf(names...)
	return err
}

// MarshalJSON implements json.Marshaler.
func (f Families) MarshalJSON() ([]byte, error) { return json.Marshal(f.Names()) }

// UnmarshalJSON implements json.Unmarshaler.
func (f *Families) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return fmt.Errorf("decoding families of events: %w", err)
	}
	var err error
	*f, err = FamiliesOf(names...)
	return err
}
