package store_test

import (
	"testing"
	"testing/fstest"

	"github.com/skeinhq/skein/pkg/store"
)

func TestMigrations_AreNumberedFromOne(t *testing.T) {
	for name, tc := range map[string]struct {
		files []string
		ok    bool
	}{
		"two in order":          {[]string{"0001_a.sql", "0002_b.sql"}, true},
		"a gap":                 {[]string{"0001_a.sql", "0003_b.sql"}, false},
		"twice the same number": {[]string{"0001_a.sql", "0001_b.sql"}, false},
		"from zero":             {[]string{"0000_a.sql"}, false},
		"a name without number": {[]string{"a.sql"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for _, file := range tc.files {
				files["dir/"+file] = &fstest.MapFile{Data: []byte("-- " + file)}
			}
			ms, err := store.Migrations(files, "dir")
			if (err == nil) != tc.ok {
				t.Fatalf("migrations %v, error %v", ms, err)
			}
			for i, m := range ms {
				if m.Version != i+1 || m.Name != tc.files[i] || m.SQL != "-- "+m.Name {
					t.Errorf("number %d is %+v", i+1, m)
				}
			}
		})
	}
}
