package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
)

// serverContext has the values of the server flags that are set, by the names in contextKeys.
type serverContext map[string]string

// contextKeys are the names of the server flags, with _ in place of -. The values of all but the addresses are file names.
var contextKeys = []string{"url", "publish_url", "read_url", "api_key_file", "server_ca_file", "client_cert_file", "client_key_file",
	"admin_url", "admin_token_file"}

func isAddress(key string) bool { return strings.HasSuffix(key, "url") }

// contextFlag returns the flag of a key; nil if the command has no such flag.
func contextFlag(f *pflag.FlagSet, key string) *pflag.Flag {
	return f.Lookup(strings.ReplaceAll(key, "_", "-"))
}

// contexts is the content of the file of contexts.
type contexts struct {
	Current  string                   `yaml:"current,omitempty"`
	Contexts map[string]serverContext `yaml:"contexts"`
}

// contextsPath returns the path of a user's file of contexts: skein/contexts.yaml in XDG_CONFIG_HOME, in APPDATA (Windows) or in
// ~/.config; "" if the environment has none of them.
func contextsPath(environ []string) string {
	home := map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		home[name] = value
	}
	dir := cmp.Or(home["XDG_CONFIG_HOME"], home["APPDATA"])
	switch {
	case dir != "":
	case home["HOME"] == "":
		return ""
	default:
		dir = filepath.Join(home["HOME"], ".config")
	}
	return filepath.Join(dir, "skein", "contexts.yaml")
}

// readContexts reads the file. A missing file counts as one without contexts.
func readContexts(path string) (contexts, error) {
	c := contexts{Contexts: map[string]serverContext{}}
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, app.Usagef("reading contexts: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return c, app.Usagef("reading contexts %s: %w", path, err)
	}
	if c.Contexts == nil {
		c.Contexts = map[string]serverContext{}
	}
	for name, keys := range c.Contexts {
		for key := range keys {
			if !slices.Contains(contextKeys, key) {
				return c, app.Usagef("reading contexts %s: %s has the key %s: want %s", path, name, key, orList(contextKeys))
			}
		}
	}
	return c, nil
}

// get returns the context with that name, or the current one for the name ""; nil if there is no current one.
func (c contexts) get(name string) (serverContext, error) {
	name = cmp.Or(name, c.Current)
	if found, ok := c.Contexts[name]; ok || name == "" {
		return found, nil
	}
	return nil, app.Usagef("there is no context %s; skein context lists all", oneLine(name, 80))
}

// write replaces the file atomically.
func (c contexts) write(path string) error {
	if path == "" {
		return app.Usagef("writing contexts: neither HOME nor XDG_CONFIG_HOME is set")
	}
	text, err := yaml.Marshal(c)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	next := path + ".new"
	if err == nil {
		err = os.WriteFile(next, text, 0o600)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("writing contexts: %w", err)
	}
	return nil
}

// applyContext sets, from the context, the server flags that neither the command line, variables nor --config have set. With
// an address and without --context it sets none: the current context's key may belong to another server. With both, the
// context's addresses do not count. It stores the context's name in s.
func (s *server) applyContext() error {
	if s.flags == nil || s.context == "" && s.addressed() {
		return nil
	}
	all, err := readContexts(contextsPath(s.out.environ))
	if err != nil {
		return err
	}
	s.context = cmp.Or(s.context, all.Current)
	c, err := all.get(s.context)
	for key, value := range c {
		if f := contextFlag(s.flags, key); f != nil && !f.Changed && err == nil && !(isAddress(key) && s.addressed()) {
			err = f.Value.Set(value)
		}
	}
	return err
}

func newContext(out *output) *cobra.Command {
	path := contextsPath(out.environ)
	names := func(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		if all, err := readContexts(path); err == nil { // the command itself reports an error
			names = slices.Sorted(maps.Keys(all.Contexts))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	cmd := &cobra.Command{
		Use:     "context",
		GroupID: groupRead,
		Short:   "List named servers and choose one",
		Long: `List named servers, each with the addresses of ingest, which publishes, cancels and erases, and of query, which reads.
Commands call the current one, marked with *, unless --context or an address names another. Contexts are
stored in skein/contexts.yaml in $XDG_CONFIG_HOME or ~/.config. API keys stay in their own files.`,
		Example: `  skein context set production --publish-url https://in.skein.example --read-url https://skein.example --api-key-file ~/.skein-key
  skein context set gateway --url https://agents.example
  skein context use production
  skein threads --context production`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			all, err := readContexts(path)
			if err != nil {
				return err
			}
			if len(all.Contexts) == 0 {
				out.note("no contexts: commands call %s", defaultURL)
				return nil
			}
			var rows [][]string
			for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
				mark := ""
				if name == all.Current {
					mark = "*"
				}
				c := all.Contexts[name]
				rows = append(rows, []string{mark, name, cmp.Or(c["publish_url"], c["url"]), cmp.Or(c["read_url"], c["url"]), c["api_key_file"]})
			}
			columns := []column{{name: " ", keep: true}, {name: "NAME", keep: true}, {name: "PUBLISH", keep: true}, {name: "READ", keep: true},
				{name: "API KEY FILE"}}
			return out.text(table(columns, rows, out.drawingWidth(), false))
		},
	}
	change := func(use, short string, f func(flags *pflag.FlagSet, all *contexts, name string) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: usageArgs(cobra.ExactArgs(1)), ValidArgsFunction: names,
			RunE: func(cmd *cobra.Command, args []string) error {
				all, err := readContexts(path)
				if err != nil {
					return err
				}
				if err := f(cmd.Flags(), &all, args[0]); err != nil {
					return err
				}
				return all.write(path)
			},
		}
	}
	const setShort = "Name a server; the first one becomes the current one"
	var at *server
	set := change("set NAME", setShort, func(f *pflag.FlagSet, all *contexts, name string) error {
		if name == "" {
			return app.Usagef("a context needs a name")
		}
		c := serverContext{}
		read, publish, err := at.addresses()
		if err != nil {
			return err
		}
		if _, err := client.New(read, client.WithPublishURL(publish)); err != nil {
			return app.Usagef("%w", err)
		}
		for _, key := range contextKeys {
			value := contextFlag(f, key).Value.String()
			if key == "admin_url" {
				value = strings.Join(at.adminURLs, ",")
			}
			if key == "url" && at.publishURL+at.readURL != "" {
				continue // it has only its default
			}
			if value != "" && !isAddress(key) {
				whole, err := filepath.Abs(value) // an absolute path, since commands run in any folder
				if err != nil {
					return fmt.Errorf("finding %s: %w", value, err)
				}
				value = whole
			}
			if value != "" {
				c[key] = value
			}
		}
		if all.Contexts[name] = c; all.Current == "" {
			all.Current = name
		}
		return nil
	})
	at = serverFlags(set, out)
	at.adminFlags(set)
	cmd.AddCommand(set,
		change("use NAME", "Make a context the current one", func(_ *pflag.FlagSet, all *contexts, name string) error {
			if _, err := all.get(name); err != nil {
				return err
			}
			all.Current = name
			return nil
		}),
		change("remove NAME", "Forget a context", func(_ *pflag.FlagSet, all *contexts, name string) error {
			if _, err := all.get(name); err != nil {
				return err
			}
			delete(all.Contexts, name)
			if all.Current == name {
				all.Current = ""
			}
			return nil
		}))
	return cmd
}
