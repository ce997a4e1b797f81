package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
)

// Run executes one command line. app.ExitCode returns the exit code for its error.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	out := newOutput(stdout, stderr, os.Environ())
	if len(os.Args) > 0 && os.Args[0] != "" {
		out.self = os.Args[0]
	}
	return execute(ctx, out, args, stdin)
}

func execute(ctx context.Context, out *output, args []string, stdin io.Reader) error {
	root := newRoot(out, stdin)
	root.SetArgs(append([]string{}, args...)) // cobra takes os.Args for nil
	return root.ExecuteContext(ctx)
}

func newRoot(out *output, stdin io.Reader) *cobra.Command {
	root := &cobra.Command{
		Use:                   "skein",
		Annotations:           map[string]string{cobra.CommandDisplayNameAnnotation: out.self},
		DisableFlagsInUseLine: true,
		Short:                 "A Kafka pipeline for AG-UI event streams",
		Long: `Skein folds the event streams of AG-UI agents into compact run records, keeps the lineage of every
thread, and restores conversations: from any run, along any branch.

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 not found; 4 differs, or faults found (verify, lint).
skein diff uses the codes of diff and git: 0 same; 1 different; 2 and above error.`,
		Version:       versionText(),
		Args:          cobra.ArbitraryArgs,
		RunE:          onlySubcommands,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return app.Configure(cmd, withoutAddresses(cmd.Flags(), out.environ))
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SuggestionsMinimumDistance = 2
	root.SetOut(out.stdout)
	root.SetErr(out.stderr)
	root.SetIn(stdin)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return app.Usagef("%w; see %s --help", app.FlagError(err), cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.String(app.ConfigFlag, "", "YAML `FILE` with settings; SKEIN_… variables and flags override it")
	flags.BoolVarP(&out.quiet, "quiet", "q", false, "print only errors on stderr, no progress or notes")

	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Run Skein on this machine:"},
		&cobra.Group{ID: groupRead, Title: "Read threads:"},
		&cobra.Group{ID: groupWrite, Title: "Publish events, change threads, or fold events without a server:"},
		&cobra.Group{ID: groupOperate, Title: "Run Skein on many machines:"},
	)
	root.AddCommand(
		newDev(out), newDemo(out),
		newThreads(out), newShow(out), newRuns(out), newStats(out), newLineage(out), newHistory(out), newTail(out), newState(out),
		newBlame(out), newDiff(out), newCheckout(out), newContext(out), newReplay(out), newVerify(out), newExport(out),
		newPublish(out), newRename(out), newArchive(out), newErase(out), newCancel(out), newFold(out), newLint(out),
		newTopics(out), newDeadLetters(out), newRefold(out), newMigrate(out), newKeys(out), newStatus(out), newVersion(out),
	)
	if width := out.drawingWidth(); width > 0 {
		fitHelp(root, width)
	}
	return root
}

const (
	groupServe   = "serve"
	groupRead    = "read"
	groupWrite   = "write"
	groupOperate = "operate"
)

// usageArgs turns the error of check into a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case check(cmd, args) == nil:
			return nil
		case cmd.HasSubCommands():
			return app.Usagef("unknown command %q; see %s --help", args[0], cmd.CommandPath())
		}
		number := "no argument"
		if len(args) > 0 {
			number = count(len(args), "argument")
		}
		return app.Usagef("%s given; usage: %s", number, cmd.UseLine())
	}
}

// group returns a command that has only subcommands. Called without a subcommand, it prints its help.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use,
		GroupID: groupOperate,
		Short:   short,
		Args:    cobra.ArbitraryArgs,
		RunE:    onlySubcommands,
	}
	cmd.AddCommand(commands...)
	return cmd
}

// onlySubcommands runs a command that was called without a subcommand. It prints the help, or refuses an argument.
func onlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := "see " + cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return app.Usagef("unknown command %q; %s", args[0], hint)
}

// versionText returns the line of --version.
func versionText() string {
	b := app.BuildInfo()
	line := "skein " + b.Version
	if b.Revision != "" {
		line += " (" + b.Revision + ")"
	}
	return fmt.Sprintf("%s, %s, %s", line, b.Go, b.Platform)
}

func newVersion(out *output) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version and build information",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return out.result(app.BuildInfo(), versionText()+"\n")
		},
	}
	jsonFlags(cmd, out)
	return cmd
}
