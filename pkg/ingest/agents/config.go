package agents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skeinhq/skein/internal/reload"
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

// Read reads a file of agents. If a setting is unknown, repeated or invalid, it refuses the whole file with an error
// that wraps ErrConfig, because a partly configured agent may disclose data.
func Read(path string) (Config, error) {
	text, err := reload.File(path, maxFileBytes)(context.Background())
	if err != nil {
		return nil, fmt.Errorf("reading agents of %s: %w: %w", path, ErrConfig, err)
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
	if err := reload.YAML(text, &file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if file.Agents == nil {
		return nil, fmt.Errorf("%w: it has no list of agents; one without any is agents: []", ErrConfig)
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
