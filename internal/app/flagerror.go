package app

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// FlagError replaces pflag's error for a value of the wrong type, which names Go functions, by an error with the expected value.
func FlagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want := map[string]string{
		"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "uint": "a whole number from 0 on", "float64": "a number",
		"bool": "true or false", "duration": "a duration such as 500ms, 90s or 24h",
	}[bad.GetFlag().Value.Type()]
	if want == "" {
		return err
	}
	return fmt.Errorf("invalid value %q for --%s: want %s", bad.GetValue(), bad.GetFlag().Name, want)
}
