//go:build !purego

package tensor

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Every kernel is called, for whole groups; other types have none.
func TestHalvesHaveKernels(t *testing.T) {
	chosen := active
	defer func() { active = chosen }()
	for _, active = range available() {
		for _, d := range numbers {
			x := floats(1, 3*group)
			raw := make([]byte, bytesFor(3*group, d))
			want := 0
			if active == neon && (d == F16 || d == BF16) {
				want = 2 * group
			}
			short := len(raw) - len(raw)/48 // the last group is not whole
			assert.Equal(t, want, vectorNarrow(raw[:short], x[:3*group-1], d), "%v %v", active, d)
			assert.Equal(t, want, vectorWiden(x[:3*group-1], raw[:short], d), "%v %v", active, d)
		}
	}
}
