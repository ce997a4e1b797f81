package tenant_test

import (
	"net/http"
	"testing"

	"github.com/skeinhq/skein/pkg/tenant"
)

func TestFixed_TakesEveryRequestForItsTenant(t *testing.T) {
	id, err := tenant.Fixed("dev").Authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer other"}}})
	if err != nil || id.Tenant != "dev" || !id.Allows(tenant.ScopeRead) || !id.Allows(tenant.ScopeWrite) {
		t.Errorf("identity is %+v, %v", id, err)
	}
}

func TestIdentity_AllowsOnlyItsScopes(t *testing.T) {
	id := tenant.Identity{Tenant: "acme", Scopes: []tenant.Scope{tenant.ScopeRead}}
	if !id.Allows(tenant.ScopeRead) || id.Allows(tenant.ScopeWrite) || (tenant.Identity{}).Allows(tenant.ScopeRead) {
		t.Error("scopes are not kept apart")
	}
}
