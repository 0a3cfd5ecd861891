package modeltest

import "testing"

// TestReference holds the reference to the goldens: they come from another
// author in another language.
func TestReference(t *testing.T) {
	testGoldens(t, Float32, NewReference)
	testEmpty(t, NewReference)
	testCancelled(t, NewReference)
	testInvalid(t, NewReference)
}
