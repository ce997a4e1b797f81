package app

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ConfigFlag is the flag of a YAML file with settings.
const ConfigFlag = "config"

const envPrefix = "SKEIN_"

// Configure sets every flag of cmd that is not on the command line from a SKEIN_… variable of environ, else from the YAML file of
// --config (or SKEIN_CONFIG). Flag --kafka-listen, variable SKEIN_KAFKA_LISTEN and key kafka_listen are the same setting.
//
// File and variables may have settings of any stage and command of Skein, so that one file or environment serves all. An unknown
// key is an error, with the closest known one: a setting that is silently ignored is worse than a process that does not start.
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

// serviceLink matches the variables that Kubernetes sets in every container for services whose names start with "skein". They are
// no settings.
var serviceLink = regexp.MustCompile(`^SKEIN_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?)$`)

// testVariable matches the variables that configure tests, which start commands with their own environment.
var testVariable = regexp.MustCompile(`^SKEIN_(TEST_.*|CACHE)$`)

// APIKeyVariable is the variable with the API key for commands that call the HTTP API. It is no setting: a secret must have no
// flag and not be in a configuration file.
const APIKeyVariable = "SKEIN_API_KEY"

// settingOfVariable returns the setting of a variable, or "" if it is no setting.
func settingOfVariable(name, value string) (string, any) {
	if name == APIKeyVariable || serviceLink.MatchString(name) || testVariable.MatchString(name) {
		return "", nil
	}
	return strings.ToLower(strings.TrimPrefix(name, envPrefix)), value
}

// settings returns all settings of a command and its subcommands.
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
		maps.Copy(known, settings(sub))
	}
	return known
}

func checkKeys(k *koanf.Koanf, known map[string]bool, spell func(string) string, where string) error {
	for _, key := range slices.Sorted(maps.Keys(k.Raw())) {
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

// settingText formats a YAML or environment value for a flag.
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
