package app

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// ConfigFlag is the flag of a YAML file with settings.
const ConfigFlag = "config"

const envPrefix = "SKEIN_"

// Configure sets every flag of cmd that is not on the command line from a SKEIN_… variable of environ, else from the YAML file of
// --config (or SKEIN_CONFIG). Flag --kafka-listen, variable SKEIN_KAFKA_LISTEN and key kafka_listen are the same setting.
//
// File and variables may have settings of any stage and command of Skein, so that one file or environment serves all. An unknown
// key is an error that names the closest known key: silently ignoring a setting is worse than refusing to start.
func Configure(cmd *cobra.Command, environ []string) error {
	known := settings(cmd.Root())
	maps.Copy(known, allSettings())
	variables := map[string]any{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if key := settingOfVariable(name); key != "" {
			variables[key] = value
		}
	}
	if err := checkKeys(variables, known, func(key string) string { return envPrefix + strings.ToUpper(key) }, "environment"); err != nil {
		return err
	}

	path, _ := variables[ConfigFlag].(string)
	if f := cmd.Flags().Lookup(ConfigFlag); f != nil && f.Changed {
		path = f.Value.String()
	}
	values := map[string]any{}
	if path != "" {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return Usagef("reading configuration: there is no file %s", path)
		}
		var inFile map[string]any
		if err == nil {
			err = yaml.Unmarshal(text, &inFile)
		}
		if err != nil {
			return Usagef("reading configuration %s: %w", path, err)
		}
		if err := checkKeys(inFile, known, func(key string) string { return key }, path); err != nil {
			return err
		}
		maps.Copy(values, inFile)
	}
	maps.Copy(values, variables)

	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		key := settingOfFlag(f.Name)
		value, is := values[key]
		if f.Changed || err != nil || !is {
			return
		}
		text, convErr := settingText(value)
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

// serviceLink matches the variables that Kubernetes sets in every container for services whose names start with "skein". These
// are not settings.
var serviceLink = regexp.MustCompile(`^SKEIN_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?)$`)

// testVariable matches the variables that configure tests, which start commands with their own environment.
var testVariable = regexp.MustCompile(`^SKEIN_(TEST_.*|CACHE)$`)

// APIKeyVariable is the variable with the API key for commands that call the HTTP API. It is not a setting, because a secret
// must not be passed as a flag or stored in a configuration file.
const APIKeyVariable = "SKEIN_API_KEY"

// settingOfVariable returns the setting of a variable, or "" if it is no setting.
func settingOfVariable(name string) string {
	setting, is := strings.CutPrefix(name, envPrefix)
	if !is || name == APIKeyVariable || serviceLink.MatchString(name) || testVariable.MatchString(name) {
		return ""
	}
	return strings.ToLower(setting)
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

func checkKeys(values map[string]any, known map[string]bool, spell func(string) string, where string) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
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
