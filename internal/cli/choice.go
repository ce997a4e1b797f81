package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
)

// choice is the value of a flag that takes one of a few words. Any other word is a usage error that lists the words.
type choice struct {
	value *string
	words []string
}

// choiceFlag adds a flag that takes one of words, and completes them. The argument usage names the value in backquotes.
func choiceFlag(cmd *cobra.Command, value *string, name, short, fallback, usage string, words ...string) {
	*value = fallback
	cmd.Flags().VarP(&choice{value, words}, name, short, usage)
	complete(cmd, name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// complete gives a flag its completion function.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // callers complete flags that they have just added
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
func (c *choice) Type() string { return "choice" }

// orList writes words as "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// The values of --output.
const (
	formText  = "text"
	formTable = "table"
	formWide  = "wide"
	formName  = "name"
	formJSON  = "json"
	formJSONL = "jsonl"
)

// formFlags adds --output with the forms of a command, the default first, and --json as a synonym for -o with the form asJSON. Both
// set out.form and out.asJSON before the command runs. Commands that always print JSON (checkout, export, fold) have no --output.
func formFlags(cmd *cobra.Command, out *output, usage, asJSON string, forms ...string) {
	var form string
	choiceFlag(cmd, &form, "output", "o", forms[0], usage, forms...)
	cmd.Flags().BoolVar(&out.asJSON, "json", false, "the same as -o "+asJSON)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if out.asJSON && cmd.Flags().Changed("output") && form != asJSON {
			return app.Usagef("--json is -o %s: leave it or -o %s out", asJSON, form)
		}
		if out.form = form; out.asJSON {
			out.form = asJSON
		}
		out.asJSON = out.form == formJSON || out.form == formJSONL
		return nil
	}
}

// listFlags adds --output and --json to a command that prints a list.
func listFlags(cmd *cobra.Command, out *output) {
	formFlags(cmd, out, "`FORM` of the list: table, wide (all columns), name (ids only), json (one array) or jsonl (a line for each)",
		formJSONL, formTable, formWide, formName, formJSON, formJSONL)
}

// jsonFlags adds --output and --json to a command that prints text, or one JSON document.
func jsonFlags(cmd *cobra.Command, out *output) {
	formFlags(cmd, out, "`FORM` of the output: text or json", formJSON, formText, formJSON)
}

// jsonLinesFlags adds --output and --json to a command that prints text, or one JSON line for each result.
func jsonLinesFlags(cmd *cobra.Command, out *output) {
	formFlags(cmd, out, "`FORM` of the output: text or jsonl (a line for each)", formJSONL, formText, formJSONL)
}
