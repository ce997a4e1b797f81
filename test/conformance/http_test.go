package conformance_test

import (
	"testing"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/test/conformance"
)

func TestHTTP_EqualsTheOfficialClient(t *testing.T) {
	t.Run("with parentRunId", func(t *testing.T) {
		t.Parallel()
		conformance.CheckHTTP(t, devtest.Start(t).URL(), conformance.HTTPOptions{})
	})
	t.Run("with parentRunId hidden", func(t *testing.T) {
		t.Parallel()
		conformance.CheckHTTP(t, devtest.Start(t).URL(), conformance.HTTPOptions{HideParents: true})
	})
}
