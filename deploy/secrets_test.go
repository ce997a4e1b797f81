package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The script of the service secrets, run here in folders of the test's: passwords are made on the first
// start, differ between installations, and stay on the second.
func TestCompose_MakesSecretsOnce(t *testing.T) {
	script := loadCompose(t).Services["secrets"].Command[2]
	run := func(dir string) map[string]string {
		t.Helper()
		var folders []string
		for _, name := range []string{"/secrets", "/clickhouse-users"} {
			folder := filepath.Join(dir, name)
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			folders = append(folders, name+"/", folder+"/", name+"\n", folder+"\n")
		}
		// Files are given away by root only.
		text := strings.NewReplacer(append(folders, "chown -R", ": chown -R")...).Replace(script)
		if out, err := exec.CommandContext(t.Context(), "sh", "-euc", text).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, text)
		}
		files := make(map[string]string)
		for _, name := range []string{"secrets/clickhouse-password", "secrets/api-key", "secrets/api-keys.yaml", "clickhouse-users/skein.xml"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(b)
		}
		return files
	}
	dir := t.TempDir()
	first := run(dir)
	added := "  - {name: more, tenant: globex}\n"
	made := first["secrets/api-keys.yaml"]
	first["secrets/api-keys.yaml"] += added
	if err := os.WriteFile(filepath.Join(dir, "secrets/api-keys.yaml"), []byte(first["secrets/api-keys.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	again, other := run(dir), run(t.TempDir())
	for name, content := range first {
		if content != again[name] {
			t.Errorf("%s changes on the second start", name)
		}
		if content == other[name] {
			t.Errorf("%s is the same in another installation", name)
		}
	}
	first["secrets/api-keys.yaml"] = made
	password, key := first["secrets/clickhouse-password"], first["secrets/api-key"]
	if len(password) < 32 || len(key) < 32 || strings.ContainsAny(password+key, " \n/+") {
		t.Errorf("password %q and key %q are not what one can pass on", password, key)
	}
	var users struct {
		Users struct {
			Skein struct {
				Hash   string   `xml:"password_sha256_hex"`
				Grants []string `xml:"grants>query"`
			} `xml:"skein"`
		} `xml:"users"`
	}
	if err := xml.Unmarshal([]byte(first["clickhouse-users/skein.xml"]), &users); err != nil || users.Users.Skein.Hash != hash(password) {
		t.Errorf("ClickHouse has the hash %q of the password, want %q (%v)", users.Users.Skein.Hash, hash(password), err)
	}
	// The second database is that of skein migrate --rebuild.
	want := []string{"GRANT ALL ON skein.*", "GRANT ALL ON skein_rebuild.*", "GRANT SELECT ON system.*"}
	if got := users.Users.Skein.Grants; !slices.Equal(got, want) {
		t.Errorf("ClickHouse's user has %q, want %q", got, want)
	}
	var keys struct {
		Keys []struct {
			Name, Tenant, SHA256 string
			Scopes               []string
		}
	}
	if err := yaml.UnmarshalStrict([]byte(first["secrets/api-keys.yaml"]), &keys); err != nil || len(keys.Keys) != 1 ||
		keys.Keys[0].SHA256 != hash(key) || len(keys.Keys[0].Scopes) != 3 {
		t.Errorf("the key's file is %+v, %v", keys, err)
	}
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
