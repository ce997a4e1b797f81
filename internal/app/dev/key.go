package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/tenant"
)

// The files of the API key in a data folder: the key itself, readable by its user only, and the key's hash.
const (
	keyName    = "api-key"
	hashesName = "api-keys.yaml"
)

// authenticator returns an authenticator for the one tenant. If other machines can reach the API, it requires the API key of the
// data folder, which is generated once.
func (s *Server) authenticator() (tenant.Authenticator, error) {
	exposed, err := app.Exposed(s.cfg.Listen)
	if err != nil || !exposed {
		return tenant.Fixed(Tenant), err
	}
	key, err := s.folder.apiKey()
	if err != nil {
		return nil, err
	}
	// Remove the old hash, which may be that of a deleted key.
	hashes := s.folder.in(hashesName)
	if err := os.Remove(hashes); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("writing API key: %w", err)
	}
	if err := tenant.AppendKey(hashes, tenant.Entry("dev", Tenant, tenant.Scopes(), key)); err != nil {
		return nil, err
	}
	auth := tenant.OpenKeyFile(hashes, s.cfg.Logger, s.registry)
	s.keyFile = s.folder.in(keyName)
	return auth, auth.Ready()
}

// apiKey returns the folder's API key. It generates the key if there is none.
func (f *folder) apiKey() (string, error) {
	path := f.in(keyName)
	text, err := os.ReadFile(path)
	if err == nil {
		key := strings.TrimSpace(string(text))
		if !tenant.IsKey(key) {
			return "", fmt.Errorf("reading API key: %s holds none: delete it, and a new one is generated", path)
		}
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading API key: %w", err)
	}
	key := tenant.NewKey()
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing API key: %w", err)
	}
	return key, nil
}
