package agents

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

func TestParse_ReadsAgents(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Parse([]byte(`agents:
  - name: plain
    url: http://127.0.0.1:8000/agent?x=1
  - name: All_of.it-2
    url: https://agents.example/run
    headers: [Authorization, x-request-id]
    credential_file: ` + secret + `
    credential_header: X-Api-Key
    connect_timeout: 1s
    answer_timeout: 2m
    silence_timeout: 3m
    run_timeout: 4h
    on_disconnect: cancel
    on_kafka_failure: cut
    labels: {user: /forwardedProps/userId, "": /x}
`))
	if err == nil || !strings.Contains(err.Error(), "no key of a label") {
		t.Errorf("an empty key of a label gives %v", err)
	}
	got, err := Parse([]byte(`agents:
  - {name: plain, url: "http://127.0.0.1:8000/agent?x=1"}
  - {name: All_of.it-2, url: "https://agents.example/run", headers: [Authorization, x-request-id], credential_file: ` + secret + `,
     credential_header: X-Api-Key, connect_timeout: 1s, answer_timeout: 2m, silence_timeout: 3m, run_timeout: 4h,
     tenants: [acme, "a b"], tenant_header: "",
     on_disconnect: cancel, on_kafka_failure: cut, runs: queue, max_queued: 3, labels: {user: /forwardedProps/userId}}
`))
	want := Config{
		"plain": {
			Name: "plain", URL: "http://127.0.0.1:8000/agent?x=1", ConnectTimeout: DefaultConnectTimeout, AnswerTimeout: DefaultAnswerTimeout,
			SilenceTimeout: DefaultSilenceTimeout, RunTimeout: DefaultRunTimeout, OnDisconnect: Finish, OnKafkaFailure: Continue,
			Runs: Allow, MaxQueued: DefaultMaxQueued,
			TenantHeader: new("X-Skein-Tenant"),
		},
		"All_of.it-2": {
			Name: "All_of.it-2", URL: "https://agents.example/run", Headers: []string{"Authorization", "x-request-id"},
			CredentialFile: secret, CredentialHeader: "X-Api-Key", ConnectTimeout: time.Second, AnswerTimeout: 2 * time.Minute,
			SilenceTimeout: 3 * time.Minute, RunTimeout: 4 * time.Hour, OnDisconnect: Cancel, OnKafkaFailure: Cut,
			Runs: Queue, MaxQueued: 3,
			Labels: map[string]string{"user": "/forwardedProps/userId"}, Tenants: []string{"acme", "a b"}, TenantHeader: new(""),
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if none, err := Parse([]byte("agents: []")); err != nil || len(none) != 0 {
		t.Errorf("none at all is %v, %v", none, err)
	}
}

func TestParse_SaysWhatToDo(t *testing.T) {
	with := func(more string) string { return "agents:\n  - {name: a, url: 'http://x/', " + more + "}" }
	many := "labels: {"
	for i := range record.MaxLabels + 1 {
		many += string(rune('a'+i)) + ": /x, "
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                      {"", "it is empty"},
		"no list":                      {"agents:\n", "agents: []"},
		"no YAML":                      {"agents: [", "did not find"},
		"two documents":                {"agents: []\n---\nagents: []\n", "more than one"},
		"an unknown key":               {with("on-disconnect: cancel"), "on-disconnect is not a key"},
		"an unknown key of the file":   {"agents: []\nagent: {}\n", "line 2: agent is not a key"},
		"a key twice":                  {with("name: b"), "already defined"},
		"a name twice":                 {"agents: [{name: a, url: 'http://x/'}, {name: a, url: 'http://y/'}]", "agent 2: name a: there is an agent of that name already"},
		"no name":                      {"agents: [{url: 'http://x/'}]", "write 1 to 128"},
		"a slash in the name":          {"agents: [{name: a/b, url: 'http://x/'}]", "write 1 to 128"},
		"a dot as name":                {"agents: [{name: '..', url: 'http://x/'}]", "first a letter or digit"},
		"no URL":                       {"agents: [{name: a}]", "begins with http:// or https://"},
		"a URL without scheme":         {"agents: [{name: a, url: 'localhost:8000'}]", "begins with http:// or https://"},
		"a URL of a file":              {"agents: [{name: a, url: 'file:///etc/passwd'}]", "begins with http:// or https://"},
		"a URL with a password":        {"agents: [{name: a, url: 'http://u:hush@x/'}]", "credential_file"},
		"a URL that is none":           {"agents: [{name: a, url: 'http://u:hush@x:y/'}]", "url: "},
		"a URL with a fragment":        {"agents: [{name: a, url: 'http://x/#y'}]", "leave out"},
		"a time without unit":          {with("run_timeout: 5"), "`5` is not a duration such as 500ms"},
		"a time below 0":               {with("answer_timeout: -1s"), "answer_timeout -1s: write a time above 0"},
		"another choice":               {with("on_disconnect: stop"), `on_disconnect "stop": write finish or cancel`},
		"another choice of Kafka":      {with("on_kafka_failure: stop"), `on_kafka_failure "stop": write continue or cut`},
		"another policy":               {with("runs: one"), `runs "one": write allow, reject, queue or cancel-first`},
		"a queue below 0":              {with("max_queued: -1"), "max_queued -1: write a number above 0"},
		"a header that is none":        {with("headers: ['a b']"), "no name of a header"},
		"a header of Skein":            {with("headers: [skein-authorization]"), "Skein-Authorization cannot go on"},
		"a header of the connection":   {with("headers: [transfer-encoding]"), "cannot go on"},
		"a header twice":               {with("headers: [X-A, x-a]"), "there twice"},
		"a credential without file":    {with("credential_header: X-Key"), "there is no credential_file"},
		"a credential that is missing": {with("credential_file: /nowhere/secret"), "credential_file: reading credential"},
		"a credential in two":          {with("credential_file: /etc/hostname, headers: [authorization]"), "carries the credential"},
		"nobody may call":              {with("tenants: []"), "leave it out for all"},
		"a tenant that is none":        {with("tenants: ['..']"), "tenants: "},
		"the tenant in a caller's":     {with("headers: [x-skein-tenant]"), `"X-Skein-Tenant" cannot carry the tenant`},
		"the tenant in a credential's": {with("credential_file: /etc/hostname, tenant_header: authorization"), "cannot carry the tenant"},
		"the tenant in no header":      {with("tenant_header: 'a b'"), "cannot carry the tenant"},
		"a pointer that is none":       {with("labels: {user: forwardedProps}"), "write one such as /forwardedProps/userId"},
		"a pointer with a wrong ~":     {with("labels: {user: /a~2}"), "no JSON pointer"},
		"too many labels":              {with(many + "}"), "at most 16"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") ||
				strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "agents.Agent") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestParsePairs_ReadsNamesAndURLs(t *testing.T) {
	got, err := ParsePairs([]string{"a=http://x/?q=1", "b=https://y/"})
	if err != nil || got["a"].URL != "http://x/?q=1" || got["b"].URL != "https://y/" || !reflect.DeepEqual(got.Names(), []string{"a", "b"}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"a", "=http://x/", "a=", "a=x"} {
		if _, err := ParsePairs([]string{bad}); !errors.Is(err, ErrConfig) {
			t.Errorf("%q gives %v", bad, err)
		}
	}
	if _, err := ParsePairs([]string{"a=http://x/", "a=http://y/"}); !errors.Is(err, ErrConfig) {
		t.Errorf("a name twice gives %v", err)
	}
}

func TestRead_NamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agents.yaml")
	if _, err := Read(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, []byte("agents: [{}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestLabelsOf_FindsValuesInTheInput(t *testing.T) {
	input := []byte(`{"forwardedProps":{"user":"ä\u00e4\n","a/b":{"~":"tilde"},"n":1e3,"t":true,"nil":null,"o":{},"l":[1,["x"]],"":"empty","twice":1,"twice":2,"long":"` + strings.Repeat("x", 257) + `","none":""}}`)
	for pointer, want := range map[string]string{
		"/forwardedProps/user": "ää\n", "/forwardedProps/a~1b/~0": "tilde", "/forwardedProps/n": "1e3", "/forwardedProps/t": "true",
		"/forwardedProps/l/0": "1", "/forwardedProps/l/1/0": "x", "/forwardedProps/": "empty", "/forwardedProps/twice": "2",
		"/forwardedProps/nil": "-", "/forwardedProps/o": "-", "/forwardedProps/l": "-", "/forwardedProps/l/2": "-", "/forwardedProps/l/00": "-",
		"/forwardedProps/l/-": "-", "/forwardedProps/long": "-", "/forwardedProps/none": "", "/x": "-", "/forwardedProps/user/x": "-",
	} {
		got := Agent{Labels: map[string]string{"k": pointer}}.LabelsOf(input)
		switch {
		case want == "-" && got != nil, want != "-" && !reflect.DeepEqual(got, []record.Label{{Key: "k", Value: want}}):
			t.Errorf("%s is %q, want %q", pointer, got, want)
		}
	}
}
