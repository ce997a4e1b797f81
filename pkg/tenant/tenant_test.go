package tenant_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/pkg/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFixed_TakesEveryRequestForItsTenant(t *testing.T) {
	id, err := tenant.Fixed("dev").Authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer other"}}})
	if err != nil || id.Tenant != "dev" {
		t.Errorf("identity is %+v, %v", id, err)
	}
	for _, s := range tenant.Scopes() {
		if !id.Allows(s) {
			t.Errorf("%s is not allowed", s)
		}
	}
}

func TestIdentity_AllowsOnlyItsScopes(t *testing.T) {
	id := tenant.Identity{Tenant: "acme", Scopes: []tenant.Scope{tenant.ScopeRead}}
	if !id.Allows(tenant.ScopeRead) || id.Allows(tenant.ScopePublish) || id.Allows(tenant.ScopeErase) ||
		(tenant.Identity{}).Allows(tenant.ScopeRead) {
		t.Error("scopes are not kept apart")
	}
}
