package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The functions that the ways of an event and of a read name are there, in the files that stand beside them.
func TestArchitecture_NamesFunctionsThatAreThere(t *testing.T) {
	const page = "../../docs/architecture.md"
	way := section(t, page, "## From the socket to the topic\n") + section(t, page, "## The way of an event\n") +
		section(t, page, "## From the topic of runs to the tables\n") + section(t, page, "## The way of a read\n")
	name := regexp.MustCompile("`([a-z]+)\\.([A-Za-z]+(?:\\.[A-Za-z]+)?)`")
	file := regexp.MustCompile(`\]\(\.\./((?:pkg|internal)/[a-z/]+\.go)\)`)
	folders := map[string]string{
		"partition": "pkg/compactor/partition", "runstore": "pkg/compactor/runstore", "clickhouse": "pkg/store/clickhouse",
		"front": "internal/front",
	}
	known := map[string]map[string]string{}
	n := 0
	for line := range strings.Lines(way) {
		files := map[string]bool{}
		for _, f := range file.FindAllStringSubmatch(line, -1) {
			files[f[1]] = false
		}
		hasFiles := len(files) > 0
		for _, m := range name.FindAllStringSubmatch(line, -1) {
			pkg, function := m[1], m[2]
			if pkg == "skein" { // a topic
				continue
			}
			n++
			if known[pkg] == nil {
				folder := folders[pkg]
				if folder == "" {
					folder = "pkg/" + pkg
				}
				known[pkg] = namesOf(t, folder)
			}
			at, ok := known[pkg][function]
			if !ok {
				t.Errorf("there is no %s.%s", pkg, function)
			}
			if _, ok := files[at]; !ok && hasFiles {
				t.Errorf("%s.%s is in %s, which does not stand beside it", pkg, function, at)
			}
			files[at] = true
		}
		for f, named := range files {
			if !named {
				t.Errorf("%s stands beside functions of other files", f)
			}
		}
	}
	if n < 30 {
		t.Fatalf("it names %d functions, which is no way", n)
	}
}

// The picture has all packages, and each import is an arrow of it or follows from its arrows.
func TestArchitecture_PictureHasAllPackages(t *testing.T) {
	picture := section(t, "../../docs/architecture.md", "## Packages\n")
	node := regexp.MustCompile(`(?m)^  (\w+)\["([a-z/]+)[:"].*?(?:--> (.*))?$`)
	paths, arrows := map[string]string{}, map[string][]string{}
	for _, m := range node.FindAllStringSubmatch(picture, -1) {
		paths[m[1]] = m[2]
		for below := range strings.SplitSeq(m[3], " & ") {
			if below != "" {
				arrows[m[2]] = append(arrows[m[2]], paths[below]) // it stands above: the picture is drawn from the bottom
			}
		}
	}
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return slices.ContainsFunc(arrows[from], func(next string) bool { return next == to || reaches(next, to) })
	}
	there := map[string]bool{}
	err := filepath.WalkDir("../../pkg", func(file string, d os.DirEntry, err error) error {
		folder, _ := filepath.Rel("../../pkg", filepath.Dir(file))
		if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.Contains(folder+"/", "test/") {
			return err
		}
		there[folder] = true
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range parsed.Imports {
			to, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "github.com/skeinhq/skein/pkg/")
			if ours && !reaches(folder, to) {
				t.Errorf("%s imports %s, and no arrow goes there", folder, to)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !there[path] {
			t.Errorf("%s stands in the picture, and is no package", path)
		}
		delete(there, path)
	}
	for folder := range there {
		t.Errorf("%s is not in the picture", folder)
	}
}

// What exactly-once is said to rest on is there under these names.
func TestFailureModel_NamesWhatIsThere(t *testing.T) {
	rules := section(t, "../../docs/failure-model.md", "### What exactly-once rests on\n")
	names := regexp.MustCompile("`([A-Za-z]+\\.[A-Za-z]+)`").FindAllStringSubmatch(rules, -1)
	if len(names) < 15 {
		t.Fatalf("it names %d functions", len(names))
	}
	known := map[string]string{}
	for _, folder := range []string{"compactor", "compactor/partition", "compactor/runstore"} {
		for name, file := range namesOf(t, "pkg/"+folder) {
			known[name] = file
		}
	}
	for name := range namesOf(t, "pkg/kafka") {
		known["kafka."+name] = "pkg/kafka"
	}
	for _, n := range names {
		if _, ok := known[n[1]]; !ok {
			t.Errorf("there is no %s", n[1])
		}
	}
}

// section returns what stands below a heading of a document, up to the next one.
func section(t *testing.T, document, heading string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(text), heading)
	if !ok {
		t.Fatalf("%s has no %q", document, heading)
	}
	part, _, _ = strings.Cut(part, "\n#")
	return part
}

// namesOf returns the functions of a package, its methods and fields of structs as Type.Name, each with its file.
func namesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		at := folder + "/" + filepath.Base(file)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					of := d.Recv.List[0].Type
					if star, ok := of.(*ast.StarExpr); ok {
						of = star.X
					}
					if generic, ok := of.(*ast.IndexExpr); ok {
						of = generic.X
					}
					if id, ok := of.(*ast.Ident); ok {
						name = id.Name + "." + name
					}
				}
				found[name] = at
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					typ, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					structure, ok := typ.Type.(*ast.StructType)
					if !ok {
						continue
					}
					for _, field := range structure.Fields.List {
						for _, n := range field.Names {
							found[typ.Name.Name+"."+n.Name] = at
						}
					}
				}
			}
		}
	}
	return found
}
