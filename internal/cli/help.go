package cli

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
)

// fitHelp wraps the help of a command and of all its subcommands to a terminal's width. Examples stay as they are.
func fitHelp(root *cobra.Command, width int) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", width)))
	commands := []*cobra.Command{root}
	for len(commands) > 0 {
		cmd := commands[0]
		commands = append(commands[1:], cmd.Commands()...)
		paragraphs := strings.Split(cmd.Long, "\n\n")
		for i, p := range paragraphs {
			paragraphs[i] = ansi.Wrap(strings.Join(strings.Fields(p), " "), width, "")
		}
		cmd.Long = strings.Join(paragraphs, "\n\n")
	}
}
