package kafka

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signature is that of a request whose signature is in its query (AWS Signature Version 4). It is written from AWS's description, to
// compare with the client's.
func signature(host, path string, query url.Values, payload, secret, region, service string) string {
	sum := func(text string) string {
		s := sha256.Sum256([]byte(text))
		return hex.EncodeToString(s[:])
	}
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	at := query.Get("X-Amz-Date")
	request := "GET\n" + path + "\n" + strings.ReplaceAll(query.Encode(), "+", "%20") + "\nhost:" + host + "\n\nhost\n" + payload
	text := "AWS4-HMAC-SHA256\n" + at + "\n" + at[:8] + "/" + region + "/" + service + "/aws4_request\n" + sum(request)
	key := []byte("AWS4" + secret)
	for _, part := range []string{at[:8], region, service, "aws4_request"} {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, text))
}

// The example of AWS's "Authenticating Requests: Using Query Parameters".
func TestSignature_IsThatOfAWSsExample(t *testing.T) {
	got := signature("examplebucket.s3.amazonaws.com", "/test.txt", url.Values{
		"X-Amz-Algorithm": {"AWS4-HMAC-SHA256"}, "X-Amz-Credential": {"AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"},
		"X-Amz-Date": {"20130524T000000Z"}, "X-Amz-Expires": {"86400"}, "X-Amz-SignedHeaders": {"host"},
	}, "UNSIGNED-PAYLOAD", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3")
	if got != "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404" {
		t.Errorf("signature is %s", got)
	}
}

// Credentials come from where AWS's programs look for them, and sign what MSK asks for.
func TestIAM_SignsWithTheCredentialsOfTheProcess(t *testing.T) {
	keys := `{"AccessKeyId":"AKID","SecretAccessKey":"SECRET","Token":"SESSION","Expiration":"` +
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `","Code":"Success","Type":"AWS-HMAC"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost: // STS
			if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("WebIdentityToken") != "identity" {
				t.Errorf("STS is asked %v", r.Form)
			}
			_, _ = w.Write([]byte(`<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>` +
				`<AccessKeyId>AKID</AccessKeyId><SecretAccessKey>SECRET</SecretAccessKey><SessionToken>SESSION</SessionToken><Expiration>` +
				time.Now().Add(time.Hour).UTC().Format(time.RFC3339) +
				`</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`))
		case r.Method == http.MethodPut: // the instance's metadata
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
			_, _ = w.Write([]byte("metadata"))
		case strings.HasSuffix(r.URL.Path, "/security-credentials/"):
			_, _ = w.Write([]byte("role"))
		case r.URL.Path == "/container" && r.Header.Get("Authorization") != "identity":
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = w.Write([]byte(keys))
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	none := map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "none"),
		"AWS_CONFIG_FILE": filepath.Join(dir, "none"), "AWS_REGION": "eu-west-1"}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ROLE_ARN",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		none[name] = ""
	}
	for name, env := range map[string]map[string]string{
		"environment": {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "SECRET", "AWS_SESSION_TOKEN": "SESSION"},
		"web identity": {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/skein", "AWS_WEB_IDENTITY_TOKEN_FILE": file("identity", "identity"),
			"AWS_ENDPOINT_URL_STS": server.URL},
		"profile": {"AWS_SHARED_CREDENTIALS_FILE": file("credentials", "[default]\naws_access_key_id = AKID\n"+
			"aws_secret_access_key = SECRET\naws_session_token = SESSION\n")},
		"container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file("identity", "identity")},
		"instance":  {"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.URL},
	} {
		t.Run(name, func(t *testing.T) {
			awsChain.provider = nil
			all := maps.Clone(none)
			maps.Copy(all, env)
			for k, v := range all {
				t.Setenv(k, v)
				if v == "" {
					_ = os.Unsetenv(k) // Setenv restores it
				}
			}
			const host = "b-1.skein.abcdef.c2.kafka.eu-central-1.amazonaws.com"
			_, first, err := iam{}.Authenticate(t.Context(), host+":9098")
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			if err := json.Unmarshal(first, &got); err != nil {
				t.Fatal(err)
			}
			signed := url.Values{"Action": {"kafka-cluster:Connect"}, "X-Amz-Algorithm": {"AWS4-HMAC-SHA256"}, "X-Amz-SignedHeaders": {"host"},
				"X-Amz-Credential": {"AKID/" + got["x-amz-date"][:8] + "/eu-central-1/kafka-cluster/aws4_request"},
				"X-Amz-Date":       {got["x-amz-date"]}, "X-Amz-Expires": {"300"}, "X-Amz-Security-Token": {"SESSION"}}
			empty := sha256.Sum256(nil)
			want := map[string]string{"host": host, "version": "2020_10_22", "user-agent": "skein",
				"x-amz-signature": signature(host, "/", signed, hex.EncodeToString(empty[:]), "SECRET", "eu-central-1", "kafka-cluster")}
			for k, v := range signed {
				want[strings.ToLower(k)] = v[0]
			}
			if !maps.Equal(got, want) {
				t.Errorf("it sends\n%v\nwant\n%v", got, want)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		awsChain.provider = nil
		for k, v := range none {
			t.Setenv(k, v)
		}
		if _, _, err := (iam{}).Authenticate(t.Context(), "kafka:9098"); err == nil || !strings.Contains(err.Error(), "looking for AWS credentials in") {
			t.Errorf("it says %v", err)
		}
	})
}
