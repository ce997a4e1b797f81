package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

type settingsSeen struct {
	listen     string
	partitions int
	brokers    []string
	quiet      bool
}

func configured(t *testing.T, args, environ []string) (settingsSeen, error) {
	t.Helper()
	var s settingsSeen
	root := &cobra.Command{Use: "root", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().String(ConfigFlag, "", "")
	cmd := &cobra.Command{Use: "serve", RunE: func(cmd *cobra.Command, _ []string) error { return Configure(cmd, environ) }}
	cmd.Flags().StringVar(&s.listen, "kafka-listen", "default", "")
	cmd.Flags().IntVar(&s.partitions, "partitions", 12, "")
	cmd.Flags().StringSliceVar(&s.brokers, "brokers", nil, "")
	cmd.Flags().BoolVar(&s.quiet, "quiet", false, "")
	other := &cobra.Command{Use: "other", RunE: func(*cobra.Command, []string) error { return nil }}
	other.Flags().String("url", "", "")
	root.AddCommand(cmd, other)
	root.SetArgs(append([]string{"serve"}, args...))
	err := root.Execute()
	return s, err
}

func TestConfigure_FlagsVariablesAndFileSayTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skein.yaml")
	yaml := "kafka_listen: from-file\npartitions: 3\nbrokers: [a:1, b:2]\nquiet: true\nurl: of-another-command\ninstance_id: of-another-stage\n"
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args, environ []string
		want          string
	}{
		"nothing given":          {nil, nil, "default"},
		"file":                   {[]string{"--config", path}, nil, "from-file"},
		"file named by variable": {nil, []string{"SKEIN_CONFIG=" + path}, "from-file"},
		"variable over file":     {[]string{"--config", path}, []string{"SKEIN_KAFKA_LISTEN=from-env"}, "from-env"},
		"flag over both": {[]string{"--config", path, "--kafka-listen", "from-flag"}, []string{"SKEIN_KAFKA_LISTEN=from-env"},
			"from-flag"},
		"variables of Kubernetes": {nil, []string{"SKEIN_PORT=tcp://10.0.0.1:80", "SKEIN_SERVICE_HOST=10.0.0.1",
			"SKEIN_QUERY_PORT_8420_TCP_ADDR=10.0.0.1"}, "default"},
		"variables of tests": {nil, []string{"SKEIN_TEST_BROKERS=127.0.0.1:9092", "SKEIN_CACHE=/tmp"}, "default"},
		"an API key":         {nil, []string{"SKEIN_API_KEY=sk_x"}, "default"},
		"variables of other stages": {nil, []string{"SKEIN_IDLE_LIMIT=1h", "SKEIN_CLICKHOUSE_USER=skein", "SKEIN_DRAIN_TIMEOUT=1s",
			"SKEIN_REPLICATION=3"}, "default"},
		"foreign variables": {nil, []string{"KAFKA_LISTEN=x", "SKEINX=1"}, "default"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := configured(t, c.args, c.environ)
			if err != nil {
				t.Fatal(err)
			}
			if s.listen != c.want {
				t.Errorf("kafka-listen is %q, want %q", s.listen, c.want)
			}
			if strings.HasPrefix(name, "file") && (s.partitions != 3 || len(s.brokers) != 2 || !s.quiet) {
				t.Errorf("types other than text are not taken over: %+v", s)
			}
		})
	}
}

func TestConfigure_RefusesWhatItDoesNotKnow(t *testing.T) {
	for name, c := range map[string]struct{ yaml, env, want string }{
		"key in file":       {"partition: 3\n", "", "did you mean partitions?"},
		"key spelt as flag": {"kafka-listen: x\n", "", "did you mean kafka_listen?"},
		"variable":          {"", "SKEIN_KAFKA_LISTNE=x", "did you mean SKEIN_KAFKA_LISTEN?"},
		"another stage's":   {"", "SKEIN_IDLE_LIMITS=1h", "did you mean SKEIN_IDLE_LIMIT?"},
		"no version":        {"", "SKEIN_VERSIN=1", "SKEIN_VERSIN in environment is not a setting"},
		"nothing like it":   {"frobnicate: 1\n", "", "frobnicate in "},
		"group of keys":     {"kafka_listen:\n  host: x\n", "", "settings are flat"},
		"no value":          {"kafka_listen:\n", "", "has no value"},
		"wrong type":        {"partitions: many\n", "", "reading setting partitions"},
		"not YAML":          {"a: b: c\n", "", "reading configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "skein.yaml")
			if err := os.WriteFile(path, []byte(c.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := configured(t, []string{"--config", path}, []string{c.env})
			if err == nil || ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got code %d, %v; want one line with %q and code %d", ExitCode(err), err, c.want, ExitUsage)
			}
		})
	}
	if _, err := configured(t, []string{"--config", "/nowhere/skein.yaml"}, nil); ExitCode(err) != ExitUsage {
		t.Errorf("a file that is not there: %v", err)
	}
}
