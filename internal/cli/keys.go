package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

func newKeys(out *output) *cobra.Command {
	return group("keys", "Create and list API keys", newKeysNew(out), newKeysList(out))
}

func newKeysNew(out *output) *cobra.Command {
	var tenantID, name, file, expires string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Create an API key and add it to a file",
		Long: `Create an API key, print it, and add its hash to the file that ingest and query take with --api-keys. The
key itself is shown only once and stored nowhere. Running stages see the new file within seconds.

To revoke a key, remove its entry from the file. With --expires a key ends by itself. Requests that were begun
with a key that has ended are cut off within 5 seconds.`,
		Example: `  skein keys new --tenant acme --scope publish,read --file api-keys.yaml
  skein keys new --tenant acme --scope read --name dashboard --expires 2160h --file api-keys.yaml >dashboard.key`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if file == "" || tenantID == "" || len(scopes) == 0 {
				return app.Usagef("pass --tenant ID, --scope SCOPE,… and --file FILE")
			}
			if err := record.ValidateID(tenantID); err != nil {
				return app.Usagef("checking tenant: %w", err)
			}
			allowed := make([]tenant.Scope, 0, len(scopes))
			for _, s := range scopes {
				scope := tenant.Scope(s)
				if !slices.Contains(tenant.Scopes(), scope) || slices.Contains(allowed, scope) {
					return app.Usagef("scope %q is not one of publish, read, erase, or is given twice", s)
				}
				allowed = append(allowed, scope)
			}
			end, err := expiry(expires, time.Now())
			if err != nil {
				return err
			}
			key := tenant.NewKey()
			entry := tenant.Entry("", tenantID, allowed, key)
			// The default name shows only a part of the hash, which is not secret.
			entry.Name = cmp.Or(name, "key-"+entry.SHA256[:12])
			entry.Expires = end
			if err := tenant.AppendKey(file, entry); err != nil {
				return err
			}
			out.note("key %s of tenant %s is in %s; it is shown only once:", oneLine(entry.Name, 80), oneLine(tenantID, 80), file)
			return out.result(struct {
				tenant.Key
				Secret string `json:"key"`
			}{entry, key}, key+"\n")
		},
	}
	f := cmd.Flags()
	f.StringVar(&tenantID, "tenant", "", "`ID` of the tenant that the key belongs to")
	f.StringSliceVar(&scopes, "scope", nil, "`SCOPES` that the key allows, separated by commas: publish, read, erase")
	f.StringVar(&name, "name", "", "unique `NAME` in the file; by default a generated one")
	f.StringVar(&expires, "expires", "",
		"`WHEN` the key ends: a time such as 2027-01-31T00:00:00Z, or a duration from now, such as 2160h; by default never")
	f.StringVar(&file, "file", "", "`FILE` of hashed keys; created if it does not exist")
	jsonFlags(cmd, out)
	return cmd
}

// expiry parses --expires; nil means never.
func expiry(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, app.Usagef("checking expires: %.100q is neither a time such as 2027-01-31T00:00:00Z nor a duration such as 2160h", text)
		}
		end = now.Add(d)
	}
	if !end.After(now) {
		return nil, app.Usagef("checking expires: %s is over already", text)
	}
	end = end.UTC().Truncate(time.Second)
	return &end, nil
}

func newKeysList(out *output) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the API keys of a file",
		Long: `List the API keys of a file: name, tenant, scopes and when they end. It also checks a file that was written by
hand: it refuses whatever a stage would refuse.`,
		Example: `  skein keys list --file api-keys.yaml`,
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return app.Usagef("pass --file FILE")
			}
			keys, err := tenant.ReadKeys(file)
			if err != nil {
				return err
			}
			if out.asJSON {
				for _, k := range keys {
					if err := out.json(k); err != nil {
						return err
					}
				}
				return nil
			}
			var rows [][]string
			for _, k := range keys {
				end := "never"
				if k.Expires != nil {
					end = k.Expires.UTC().Format(time.RFC3339)
				}
				rows = append(rows, []string{oneLine(k.Name, 80), oneLine(k.Tenant, 80), strings.Join(texts(k.Scopes), ","), end})
			}
			return out.text(table([]column{{name: "NAME"}, {name: "TENANT"}, {name: "SCOPES"}, {name: "EXPIRES"}}, rows, defaultWidth, true))
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`FILE` of hashed keys")
	jsonLinesFlags(cmd, out)
	return cmd
}
