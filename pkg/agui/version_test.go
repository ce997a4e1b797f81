package agui

import "testing"

func TestUnderstands(t *testing.T) {
	for version, want := range map[string]bool{
		ProtocolVersion: true, "1.0": true, "0.57": true, "01.001": true, "1.2": false, "1.10": false, "2.0": false, "": false,
		"1": false, "draft": false,
		"1.1.0": false, "+1.1": false, " 1.1": false, "1.": false, "0.99999999999999999999": false,
	} {
		if Understands(version) != want {
			t.Errorf("%q is %v, want %v", version, !want, want)
		}
	}
}
