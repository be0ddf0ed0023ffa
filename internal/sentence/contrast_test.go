package sentence_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestContrast compares the loss of random vectors, of fewer rows than there may be,
// with its formula.
func TestContrast(t *testing.T) {
	const size, most = 3, 5
	ctx, dev := context.Background(), testdevice.Open(t, backend.Options{})
	for _, texts := range []int{2, 3} {
		c := sentence.Contrast{Rows: most, Texts: texts, Scale: 7}
		g := graph.New()
		b := nn.NewBuilder(g, nil, nn.Options{Bounds: c.Bounds(most * texts)})
		vectors := b.Input("vectors", tensor.F32, b.Axis(sentence.Texts), ir.Static(size))
		p := g.Program()
		p.Result("loss", c.Loss(b, vectors))
		e, err := p.Compile(dev)
		require.NoError(t, err)
		defer e.Close()
		buffers := bind(t, dev, e)
		rapid.Check(t, func(r *rapid.T) {
			var batch data.Batch
			rows := rapid.IntRange(1, most).Draw(r, "rows")
			for range rows * texts {
				batch.Add([]int32{1}, nil)
			}
			c.Mark(&batch)
			n := size * rows * texts
			vectors := rapid.SliceOfN(rapid.Float32Range(0.5, 4), n, n).Draw(r, "vectors")
			batch.SetFloats("vectors", vectors)
			require.NoError(r, e.SetDim(sentence.Texts, rows*texts))
			require.NoError(r, e.SetDim(sentence.Anchors, rows))
			for _, in := range b.Inputs() {
				array, ok := batch.Array(in.Name)
				require.True(r, ok, in.Name)
				f, err := dev.Upload(buffers[in.Param], 0, array)
				require.NoError(r, err)
				require.NoError(r, f.Wait(ctx))
			}
			require.NoError(r, e.RunWait(ctx))
			var got [1]float32
			f, err := dev.Download(tensor.BytesOf(got[:]), buffers["loss"], 0)
			require.NoError(r, err)
			require.NoError(r, f.Wait(ctx))
			require.InDelta(r, contrast(vectors, size, texts, c.Scale), got[0], 1e-4)
		})
	}
}

// contrast computes the loss by its formula.
func contrast(vectors []float32, size, texts int, scale float64) (loss float64) {
	cosine := func(i, j int) float64 {
		var xy, xx, yy float64
		for k := range size {
			x, y := float64(vectors[i*size+k]), float64(vectors[j*size+k])
			xy, xx, yy = xy+x*y, xx+x*x, yy+y*y
		}
		return scale * xy / math.Sqrt(xx*yy)
	}
	rows := len(vectors) / size / texts
	for i := range rows {
		sum := 0.0
		for j := range rows {
			for k := 1; k < texts; k++ {
				sum += math.Exp(cosine(i*texts, j*texts+k))
			}
		}
		loss += math.Log(sum) - cosine(i*texts, i*texts+1)
	}
	return loss
}
