//go:build cuda && linux

package cuda_test

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/tensor"
)

func TestCasts(t *testing.T) { gputest.Casts(t, opened(t, backend.Options{})) }

// Random words are those of package philox, bit for bit, at any seed and step.
func TestPhilox(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, key := range [][3]uint32{{0, 0, 0}, {1, 2, 3}, {math.MaxUint32, math.MaxUint32, math.MaxUint32}} {
		g := graph.New()
		words := g.Of(g.IR().Philox(g.IR().Param("key", ir.RandomKey), 77, ir.ShapeOf(1027)))
		data := binary.LittleEndian.AppendUint32(nil, key[0])
		data = binary.LittleEndian.AppendUint32(data, key[1])
		data = binary.LittleEndian.AppendUint32(data, key[2])
		out, err := graph.Eval(context.Background(), dev, []graph.Tensor{words}, map[string]*tensor.Tensor{"key": {DType: tensor.U32, Shape: []int{3}, Data: data}}, nil)
		require.NoError(t, err)
		want := philox.NewStream(uint64(key[0])|uint64(key[1])<<32, key[2], 77)
		for i := range 1027 {
			require.Equal(t, want.Word(uint64(i)), binary.LittleEndian.Uint32(out[0].Data[4*i:]), "%v %d", key, i)
		}
	}
}

func TestScatterOrder(t *testing.T) { gputest.ScatterOrder(t, opened(t, backend.Options{})) }
