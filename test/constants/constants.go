// Package constants reads from source what constants there are, so that a document or a schema can be held to all of them: one that
// is added later is not forgotten.
package constants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Values returns the values of a folder's constants whose names begin with a prefix and that are text, sorted. Where there is none
// the test fails, as a name that was changed would be forgotten.
func Values(tb testing.TB, dir, prefix string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		tb.Fatal(err)
	}
	var values []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			tb.Fatal(err)
		}
		for _, decl := range source.Decls {
			if group, ok := decl.(*ast.GenDecl); ok && group.Tok == token.CONST {
				values = append(values, texts(group, prefix)...)
			}
		}
	}
	if len(values) == 0 {
		tb.Fatalf("%s has no constant %s… that is text", dir, prefix)
	}
	slices.Sort(values)
	return values
}

func texts(group *ast.GenDecl, prefix string) (values []string) {
	for _, spec := range group.Specs {
		c := spec.(*ast.ValueSpec)
		for i, name := range c.Names {
			if !strings.HasPrefix(name.Name, prefix) || i >= len(c.Values) {
				continue
			}
			if literal, ok := c.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					values = append(values, text)
				}
			}
		}
	}
	return values
}
