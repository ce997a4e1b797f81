package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
)

// choice is the value of a flag that takes one of a few words. Any other word is a usage error, which lists them.
type choice struct {
	value *string
	words []string
	name  string
}

// choiceFlag adds a flag that takes one of words, and completes them. Usage names the value in backquotes.
func choiceFlag(cmd *cobra.Command, value *string, name, short, fallback, usage string, words ...string) {
	*value = fallback
	_, rest, _ := strings.Cut(usage, "`")
	word, _, _ := strings.Cut(rest, "`")
	cmd.Flags().VarP(&choice{value, words, word}, name, short, usage)
	complete(cmd, name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// complete gives a flag its completion.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag was added just before, once
	}
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.value }

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("want %s", orList(c.words))
	}
	*c.value = text
	return nil
}

// Type implements pflag.Value.
func (c *choice) Type() string { return c.name }

// orList writes words as "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// The forms of output that --output names.
const (
	formTable = "table"
	formWide  = "wide"
	formName  = "name"
	formJSON  = "json"
	formJSONL = "jsonl"
)

// listFormat is the form in which a list is printed.
type listFormat struct {
	form   string
	asJSON bool
}

// listFlags adds --output and --json to a command that prints a list.
func listFlags(cmd *cobra.Command, f *listFormat) {
	choiceFlag(cmd, &f.form, "output", "o", formTable, "`FORM` of the list: table, wide (all columns), name (ids only), json (one array) or jsonl (a line for each)",
		formTable, formWide, formName, formJSON, formJSONL)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "the same as -o jsonl")
}

// resolve applies --json.
func (f *listFormat) resolve() error {
	if !f.asJSON {
		return nil
	}
	if f.form != formTable && f.form != formJSONL {
		return app.Usagef("--json is -o jsonl: leave it or -o %s out", f.form)
	}
	f.form = formJSONL
	return nil
}
