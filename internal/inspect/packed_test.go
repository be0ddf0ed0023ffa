package inspect

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Of types whose values are not known only the elements are counted.
func TestUnknownValues(t *testing.T) {
	for _, v := range []Values{only(t, safetensors.F4, 6, []byte{0x70, 0xf2, 0x98}), only(t, safetensors.F8E8M0, 6, make([]byte, 6))} {
		assert.EqualValues(t, 6, v.Elements)
		assert.Empty(t, v.Min)
		assert.Zero(t, v.Zero)
		assert.True(t, math.IsNaN(v.Mean))
	}
}
