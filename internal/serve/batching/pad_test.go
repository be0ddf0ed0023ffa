package batching

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPadded(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 9: 16, 33: 64, 64: 64, 65: 80, 96: 96, 97: 112, 129: 160, 250: 256, 257: 300, 4095: 4096} {
		most := 1 << 20
		if n == 257 {
			most = 300
		}
		assert.Equal(t, want, padded(n, most), n)
	}
	assert.Equal(t, 160, padded(129, 160))
	assert.Equal(t, 130, padded(129, 130), "a program has no more rows")
}
