package store

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
)

// Migration is one numbered SQL file.
type Migration struct {
	// Version is its number, from 1.
	Version int
	Name    string
	SQL     string
}

var migrationName = regexp.MustCompile(`^([0-9]{4})_[a-z0-9_]+\.sql$`)

// Migrations reads the SQL files of a folder in order. Their names are NNNN_name.sql, numbered from 1 without gaps; any other
// file is an error.
func Migrations(files fs.FS, dir string) ([]Migration, error) {
	entries, err := fs.ReadDir(files, dir) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("reading migrations: %w", err)
	}
	var ms []Migration
	for _, e := range entries {
		parts := migrationName.FindStringSubmatch(e.Name())
		if parts == nil {
			return nil, fmt.Errorf("reading migrations: %s is not named NNNN_name.sql", e.Name())
		}
		v, err := strconv.Atoi(parts[1])
		if err != nil || v != len(ms)+1 {
			return nil, fmt.Errorf("reading migrations: %s should be number %d", e.Name(), len(ms)+1)
		}
		b, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading migrations: %w", err)
		}
		ms = append(ms, Migration{Version: v, Name: e.Name(), SQL: string(b)})
	}
	return ms, nil
}
