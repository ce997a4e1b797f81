package agents

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Config contains the configured agents by name.
type Config map[string]Agent

// Names returns the names of the agents in sorted order.
func (c Config) Names() []string { return slices.Sorted(maps.Keys(c)) }

// add adds an agent and sets defaults for its unset members.
func (c Config) add(a Agent) error {
	a = a.withDefaults()
	if err := a.check(); err != nil {
		return err
	}
	if _, ok := c[a.Name]; ok {
		return fmt.Errorf("name %s: there is an agent of that name already: take another one", a.Name)
	}
	c[a.Name] = a
	return nil
}

// maxFileBytes is the largest accepted configuration file, in bytes.
const maxFileBytes = 4 << 20

// Read reads a file of agents. Any unknown, repeated or invalid setting makes the whole file an error that wraps
// ErrConfig, because a partly configured agent may disclose data.
func Read(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading agents: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading only
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading agents: %w", err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("reading agents of %s: %w: it has more than %d bytes", path, ErrConfig, maxFileBytes)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading agents of %s: %w", path, err)
	}
	return c, nil
}

// Parse parses the text of a file of agents. It also checks that the credential files can be read.
func Parse(text []byte) (Config, error) {
	var file struct {
		Agents *[]Agent `yaml:"agents"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	switch err := d.Decode(&file); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: it is empty; one without agents is agents: []", ErrConfig)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", ErrConfig, strings.ReplaceAll(err.Error(), "\n", " "))
	case file.Agents == nil:
		return nil, fmt.Errorf("%w: it has no list of agents; one without any is agents: []", ErrConfig)
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: there is more than one YAML document in it", ErrConfig)
	}
	c := Config{}
	for i, a := range *file.Agents {
		if err := c.add(a); err != nil {
			return nil, fmt.Errorf("%w: agent %d: %w", ErrConfig, i+1, err)
		}
	}
	return c, nil
}

// ParsePairs parses agents of the form NAME=URL, with defaults for all other settings.
func ParsePairs(pairs []string) (Config, error) {
	c := Config{}
	for _, pair := range pairs {
		name, url, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%w: %q: write NAME=URL, such as assistant=http://127.0.0.1:8000/", ErrConfig, pair)
		}
		if err := c.add(Agent{Name: name, URL: url}); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return c, nil
}
