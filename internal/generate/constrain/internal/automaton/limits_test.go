package automaton

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Patterns with exponentially growing automata are refused early, before they take much memory, which is a measure of
// time here too.
func TestPatternMemory(t *testing.T) {
	for _, pattern := range []string{
		"^(a|a|a|a)*b(.*a.{20})$", "^[ab]*a[ab]{20}$", "(x+x+)+y.*z.{500}", "^(.*a.{14})|(.*b.{13}c.{9})|(.*[c-f].{12})$", "a.{1000}b",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Pattern(budget(), pattern)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrTooLarge, pattern)
		assert.ErrorContains(t, err, "the pattern needs more than")
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), pattern)
	}
	for _, pattern := range []string{"^.{1,1000}$", "^[a-z]{3,900}@[a-z]{1,900}$", ".*a.{8}$", "^(?:[A-Z]{2}\\d{6}|\\d{9})$"} {
		c, err := Pattern(budget(), pattern)
		require.NoError(t, err, pattern)
		require.False(t, c.Empty())
	}
}

// A string with a pattern and a length takes little more memory than its states.
func TestQuotedMemory(t *testing.T) {
	b := budget()
	p, err := Pattern(b, "^a")
	require.NoError(t, err)
	l, err := Length(b, 0, 2000)
	require.NoError(t, err)
	both, err := Both(b, p, l)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := Quoted(b, both)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Greater(t, d.States(), 20_000)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(d.States())*1000)
}
