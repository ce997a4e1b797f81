package app

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"sort"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ConfigFlag is the flag that names a YAML file with settings.
const ConfigFlag = "config"

const envPrefix = "SKEIN_"

// Configure gives every flag of cmd that is not on the command line its value from a SKEIN_…
// variable of environ, else from the YAML file that --config (or SKEIN_CONFIG) names, else leaves
// its default. Flag --kafka-listen, variable SKEIN_KAFKA_LISTEN and key kafka_listen are the same
// setting.
//
// File and variables may hold settings of any stage and command of Skein, so that one file or one
// environment serves them all. A key that none of them knows is an error which names the closest one
// that exists: a setting that is silently not used is worse than a process that does not start.
func Configure(cmd *cobra.Command, environ []string) error {
	known := settings(cmd.Root())
	maps.Copy(known, allSettings())
	values := koanf.New(".")

	variables := koanf.New(".")
	if err := variables.Load(env.Provider("", env.Opt{
		Prefix:        envPrefix,
		EnvironFunc:   func() []string { return environ },
		TransformFunc: settingOfVariable,
	}), nil); err != nil {
		return fmt.Errorf("reading environment: %w", err)
	}
	if err := checkKeys(variables, known, func(key string) string { return envPrefix + strings.ToUpper(key) }, "environment"); err != nil {
		return err
	}

	path := variables.String(ConfigFlag)
	if f := cmd.Flags().Lookup(ConfigFlag); f != nil && f.Changed {
		path = f.Value.String()
	}
	if path != "" {
		if err := values.Load(file.Provider(path), yaml.Parser()); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return Usagef("reading configuration: there is no file %s", path)
			}
			return Usagef("reading configuration %s: %w", path, err)
		}
		if err := checkKeys(values, known, func(key string) string { return key }, path); err != nil {
			return err
		}
	}
	if err := values.Merge(variables); err != nil {
		return fmt.Errorf("merging configuration: %w", err)
	}

	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		key := settingOfFlag(f.Name)
		if f.Changed || err != nil || !values.Exists(key) {
			return
		}
		text, convErr := settingText(values.Get(key))
		if convErr == nil {
			convErr = cmd.Flags().Set(f.Name, text)
		}
		if convErr != nil {
			err = Usagef("reading setting %s: %w", key, convErr)
		}
	})
	return err
}

func settingOfFlag(name string) string { return strings.ReplaceAll(name, "-", "_") }

// serviceLink matches the variables that Kubernetes puts into every container for a service whose
// name starts with "skein"; they are no settings.
var serviceLink = regexp.MustCompile(`^SKEIN_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?)$`)

// testVariable matches the variables that tell tests where real parts are; tests start commands with
// their own environment.
var testVariable = regexp.MustCompile(`^SKEIN_(TEST_.*|CACHE)$`)

// APIKeyVariable is the variable with the API key that a command calls the HTTP API with. It is not a
// setting: a secret has no flag and no place in a configuration file.
const APIKeyVariable = "SKEIN_API_KEY"

// settingOfVariable returns the setting that a variable holds, or "" if it holds none.
func settingOfVariable(name, value string) (string, any) {
	if name == APIKeyVariable || serviceLink.MatchString(name) || testVariable.MatchString(name) {
		return "", nil
	}
	return strings.ToLower(strings.TrimPrefix(name, envPrefix)), value
}

// settings returns all settings of a command and the commands below it.
func settings(cmd *cobra.Command) map[string]bool {
	known := make(map[string]bool)
	add := func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			known[settingOfFlag(f.Name)] = true
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		for key := range settings(sub) {
			known[key] = true
		}
	}
	return known
}

func checkKeys(k *koanf.Koanf, known map[string]bool, spell func(string) string, where string) error {
	keys := make([]string, 0, len(k.Raw()))
	for key := range k.Raw() {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		if known[key] {
			continue
		}
		hint := ""
		if near := closest(key, known); near != "" {
			hint = fmt.Sprintf("; did you mean %s?", spell(near))
		}
		return Usagef("reading configuration: %s in %s is not a setting%s", spell(key), where, hint)
	}
	return nil
}

// settingText returns a YAML or environment value as a flag takes it.
func settingText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", errors.New("it has no value")
	case map[string]any:
		return "", errors.New("it is a group of keys, but settings are flat")
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			s, err := settingText(e)
			if err != nil {
				return "", err
			}
			parts[i] = s
		}
		return strings.Join(parts, ","), nil
	default:
		return fmt.Sprint(v), nil
	}
}
