package kafka

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// AWS publishes no signature for MSK. The yardstick of the test below gives the one of the signed URL in Amazon S3's API reference,
// "Authenticating Requests: Using Query Parameters".
func TestIAM_YardstickSignsAsPublished(t *testing.T) {
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Expires=86400", nil)
	signed, _, err := v4.NewSigner().PresignHTTP(t.Context(),
		sdk.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}, req,
		"UNSIGNED-PAYLOAD", "s3", "us-east-1", time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	const published = "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
	if !strings.HasSuffix(signed, published) {
		t.Errorf("got %s, want %s", signed, published)
	}
}

// Credentials come from where AWS's programs look for them, and sign what MSK asks for as AWS's own code does.
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
		"container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL + "/container",
			"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file("identity", "identity")},
		"instance": {"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.URL},
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
			at, err := time.Parse("20060102T150405Z", got["x-amz-date"])
			if err != nil {
				t.Fatal(err)
			}
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
				"https://"+host+"/?Action=kafka-cluster%3AConnect&X-Amz-Expires=300", nil)
			empty := sha256.Sum256(nil)
			signed, _, err := v4.NewSigner().PresignHTTP(t.Context(),
				sdk.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", SessionToken: "SESSION"}, req,
				hex.EncodeToString(empty[:]), "kafka-cluster", "eu-central-1", at)
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(signed)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"host": host, "version": "2020_10_22", "user-agent": "skein"}
			for k, v := range u.Query() {
				want[strings.ToLower(k)] = v[0]
			}
			if !maps.Equal(got, want) {
				t.Errorf("it sends\n%v\nwant\n%v", got, want)
			}
			if name == "profile" { // it does not expire, and its file may change
				file("credentials", "[default]\naws_access_key_id = NEXT\naws_secret_access_key = SECRET\n")
				if _, first, err = (iam{}).Authenticate(t.Context(), host+":9098"); err != nil || !strings.Contains(string(first), "NEXT/") {
					t.Errorf("with another profile: %s, %v", first, err)
				}
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		awsChain.provider = nil
		for k, v := range none {
			t.Setenv(k, v)
		}
		_, _, err := iam{}.Authenticate(t.Context(), "kafka:9098")
		if err == nil || !strings.Contains(err.Error(), "looking for AWS credentials in") {
			t.Errorf("it says %v", err)
		} else if !errors.Is(awsTrouble(), err) {
			t.Errorf("readiness says %v", awsTrouble())
		}
	})
}
