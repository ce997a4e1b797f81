package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The functions that the way of an event names are there, under these names.
func TestArchitecture_NamesFunctionsThatAreThere(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, way, ok := strings.Cut(string(text), "## The way of an event\n")
	if !ok {
		t.Fatal("docs/architecture.md has no way of an event")
	}
	way, _, _ = strings.Cut(way, "\n## ")
	names := regexp.MustCompile("`([a-z]+(?:\\.[A-Za-z]+){1,2})`").FindAllStringSubmatch(way, -1)
	if len(names) < 20 {
		t.Fatalf("it names %d functions, which is no way", len(names))
	}
	folders := map[string]string{"partition": "compactor/partition", "runstore": "compactor/runstore"}
	known := map[string]map[string]bool{}
	for _, n := range names {
		if strings.HasPrefix(n[1], "skein.") { // a topic
			continue
		}
		pkg, function, _ := strings.Cut(n[1], ".")
		if known[pkg] == nil {
			folder := folders[pkg]
			if folder == "" {
				folder = pkg
			}
			known[pkg] = functionsOf(t, filepath.Join("../../pkg", folder))
		}
		if !known[pkg][function] {
			t.Errorf("there is no %s", n[1])
		}
	}
}

// functionsOf returns a package's functions, and its methods as Type.Method.
func functionsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				of := fn.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if id, ok := of.(*ast.Ident); ok {
					name = id.Name + "." + name
				}
			}
			found[name] = true
		}
	}
	return found
}
