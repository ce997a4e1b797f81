package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// Migration is one numbered SQL file.
type Migration struct {
	// Version is its number, from 1.
	Version int
	Name    string
	SQL     string
}

// Migrations reads the SQL files of a folder in order. Their names are NNNN_name.sql, numbered from 1 without gaps; any other
// file is an error.
func Migrations(files fs.FS, dir string) ([]Migration, error) {
	names, err := fs.Glob(files, dir+"/*") // sorted
	var ms []Migration
	for i, name := range names {
		b, readErr := fs.ReadFile(files, name)
		m := Migration{Version: i + 1, Name: path.Base(name), SQL: string(b)}
		if ok, _ := path.Match(fmt.Sprintf("%04d_*.sql", m.Version), m.Name); !ok {
			return nil, fmt.Errorf("reading migrations: %s should be named %04d_name.sql", m.Name, m.Version)
		}
		ms, err = append(ms, m), errors.Join(err, readErr)
	}
	if err != nil {
		return nil, fmt.Errorf("reading migrations: %w", err)
	}
	return ms, nil
}
