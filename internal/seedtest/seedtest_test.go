package seedtest

import "testing"

func TestNew_IsTheSameAgainWhereItIsSet(t *testing.T) {
	t.Setenv("SKEIN_TEST_SEED", "")
	first := New(t)
	if New(t) == first {
		t.Error("two seeds are the same")
	}
	t.Setenv("SKEIN_TEST_SEED", "7")
	seed := New(t)
	if New(t) != seed {
		t.Error("the seed is another one")
	}
	t.Run("another test", func(t *testing.T) {
		if New(t) == seed {
			t.Error("two tests have one seed")
		}
	})
	t.Setenv("SKEIN_TEST_SEED", "8")
	if New(t) == seed {
		t.Error("the seed is that of 7")
	}
}
