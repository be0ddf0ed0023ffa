package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// These are the inputs of a vision tower, and its axis. A place is a square of Merge·Merge
// patches that becomes one token.
const (
	Patches     = "patches"      // f32 [patches, channels·frames·side·side]
	PatchRotary = "patch rotary" // f32 [patches, size of a head]: cosines, then sines
	WindowLo    = "window lo"    // i32 [patches]: the first patch of the window of each
	WindowHi    = "window hi"    // i32 [patches]: end (exclusive) of the patches of its window
	PictureLo   = "picture lo"   // i32 [patches]: the first patch of its image
	PictureHi   = "picture hi"   // i32 [patches]: end (exclusive) of the patches of its image
	Places      = "places of pictures"
)

// Vision is the vision tower of Qwen2.5-VL. Patches attend within windows and, in some layers,
// to all patches. Adjacent patches are merged into one token each.
type Vision struct {
	Layers, Size, Intermediate, Heads int
	Patch, Frames, Channels           int // a patch has Patch·Patch pixels of Frames frames
	Merge                             int // side of a token's square of patches
	Window                            int // side of a window, in pixels
	Out                               int // features of a token
	Whole                             []int
	Activation                        ir.Activation
	Theta                             float64
}

// visionEps is the epsilon of all norms of the tower.
const visionEps = 1e-6

// vision reads vision_config; it returns nil if there is none.
func (f *Fields) vision() *Vision {
	const key = "vision_config"
	if !f.Has(key) {
		return nil
	}
	s := f.Object(key)
	v := &Vision{
		Layers: s.Int("depth", 32), Size: s.Int("hidden_size", 3584), Intermediate: s.Int("intermediate_size", 3420), Heads: s.Int("num_heads", 16),
		Patch: s.Int("patch_size", 14), Frames: s.Int("temporal_patch_size", 2), Channels: s.Int("in_channels", s.Int("in_chans", 3)),
		Merge: s.Int("spatial_merge_size", 2), Window: s.Int("window_size", 112), Out: s.Int("out_hidden_size", 3584),
		Whole: s.Ints("fullatt_block_indexes", 7, 15, 23, 31), Activation: s.activation("hidden_act", "silu"),
		Theta: s.Object("rope_parameters").Float("rope_theta", 10000),
	}
	if s.err == nil {
		s.err = v.check()
	}
	if s.err != nil && f.err == nil {
		f.err = fmt.Errorf("%s: %w", key, s.err)
	}
	return v
}

func (v *Vision) check() error {
	err := CheckSizes(Size{"depth", v.Layers}, Size{"hidden_size", v.Size}, Size{"intermediate_size", v.Intermediate}, Size{"num_heads", v.Heads},
		Size{"patch_size", v.Patch}, Size{"temporal_patch_size", v.Frames}, Size{"in_channels", v.Channels},
		Size{"spatial_merge_size", v.Merge}, Size{"window_size", v.Window}, Size{"out_hidden_size", v.Out})
	switch {
	case err != nil:
		return err
	case v.Layers > maxLayers:
		return fmt.Errorf("%w: depth: found %d, expected %d at most", ErrConfig, v.Layers, maxLayers)
	case v.Size%(4*v.Heads) != 0:
		return fmt.Errorf("%w: hidden_size %d is not a multiple of four times num_heads %d", ErrConfig, v.Size, v.Heads)
	case v.Window < v.Patch*v.Merge:
		return fmt.Errorf("%w: window_size: found %d, expected %d or more, for a token", ErrConfig, v.Window, v.Patch*v.Merge)
	case v.Patch > 1<<10 || v.Frames > 1<<10 || v.Channels > 1<<10:
		return fmt.Errorf("%w: patches of %d channels, %d frames and %d pixels a side", ErrConfig, v.Channels, v.Frames, v.Patch)
	}
	return nil
}

// build emits the tower, f32 [places, Out], with modules named by prefix. Patches are in the
// order of Arrays.
func (v *Vision) build(b *nn.Builder, prefix string) graph.Tensor {
	places := b.Axis(Places)
	n := places
	n.N *= v.Merge * v.Merge
	interval := func(name string) graph.Tensor { return b.Input(name, tensor.I32, n) }
	window := [2]graph.Tensor{interval(WindowLo), interval(WindowHi)}
	whole := [2]graph.Tensor{interval(PictureLo), interval(PictureHi)}
	head := v.Size / v.Heads
	table := b.Input(PatchRotary, tensor.F32, n, ir.Static(head))
	pixels := v.Channels * v.Frames * v.Patch * v.Patch
	w := b.Frozen(prefix+".patch_embed.proj.weight", v.Size, v.Channels, v.Frames, v.Patch*v.Patch)
	if !w.Valid() {
		return w
	}
	x := b.Input(Patches, tensor.F32, n, ir.Static(pixels)).Linear(w.Reshape(ir.Static(v.Size), ir.Static(pixels)), graph.Tensor{})
	b = b.Sub("%s", prefix)
	for i := range v.Layers {
		at := window
		if slices.Contains(v.Whole, i) {
			at = whole
		}
		x = v.block(b.Sub("blocks.%d", i), x, table, at)
	}
	m := b.Sub("merger")
	if x = m.RMSNorm("ln_q", x, visionEps); !x.Valid() {
		return x
	}
	inner := v.Size * v.Merge * v.Merge
	x = m.Linear("mlp.0", x.Reshape(places, ir.Static(inner)), inner, true)
	if !x.Valid() {
		return x
	}
	return m.Linear("mlp.2", x.Activate(ir.GELU), v.Out, true)
}

func (v *Vision) block(b *nn.Builder, x, table graph.Tensor, at [2]graph.Tensor) graph.Tensor {
	attn, mlp, d := b.Sub("attn"), b.Sub("mlp"), v.Size/v.Heads
	qkv := attn.Linear("qkv", b.RMSNorm("norm1", x, visionEps), 3*v.Size, true)
	if !qkv.Valid() {
		return qkv
	}
	part := func(i int) graph.Tensor { return qkv.Slice(1, i*v.Size, (i+1)*v.Size) }
	o := part(0).RoPE(table, d).Attention(part(1).RoPE(table, d), part(2), at[0], at[1], ir.AttentionAttr{
		Heads: v.Heads, KVHeads: v.Heads, HeadDim: d, Scale: float32(1 / math.Sqrt(float64(d))),
	})
	x = attn.Linear("proj", o, v.Size, true).Add(x)
	h := b.RMSNorm("norm2", x, visionEps)
	gate, up := mlp.Linear("gate_proj", h, v.Intermediate, true), mlp.Linear("up_proj", h, v.Intermediate, true)
	if !gate.Valid() {
		return gate
	}
	return mlp.Linear("down_proj", gate.GLU(up, v.Activation), v.Size, true).Add(x)
}

// Patches cuts an image [Channels, height, width] into patches in the layout that the tower
// reads. height and width must be multiples of Patch·Merge. The patches of a token are
// adjacent, and every frame of a patch is the same image.
func (v *Vision) Patches(pixels []float32, height, width int) []float32 {
	p, m := v.Patch, v.Merge
	out := make([]float32, 0, len(pixels)*v.Frames)
	for y := 0; y < height; y += p * m {
		for x := 0; x < width; x += p * m {
			for i := range m * m {
				out = v.appendPatch(out, pixels, height, width, y+i/m*p, x+i%m*p)
			}
		}
	}
	return out
}

func (v *Vision) appendPatch(out, pixels []float32, height, width, y, x int) []float32 {
	for c := range v.Channels {
		for range v.Frames {
			for row := range v.Patch {
				from := (c*height+y+row)*width + x
				out = append(out, pixels[from:from+v.Patch]...)
			}
		}
	}
	return out
}

// Arrays fills a batch with an image of rows by columns patches, in the order of
// [Vision.Patches]. It returns the place in the image of each row of the result.
func (v *Vision) Arrays(b *data.Batch, patches []float32, rows, columns int) (order []int, err error) {
	unit, each := v.Merge*v.Merge, v.Channels*v.Frames*v.Patch*v.Patch
	if rows < v.Merge || columns < v.Merge || rows%v.Merge != 0 || columns%v.Merge != 0 || len(patches) != rows*columns*each {
		return nil, fmt.Errorf("model: %w: %d numbers for a picture of %d by %d patches of %d, sides being multiples of %d", nn.ErrInput, len(patches), columns, rows, each, v.Merge)
	}
	order, starts := v.windows(rows/v.Merge, columns/v.Merge)
	n := len(order) * unit
	windowLo, windowHi := make([]int32, 0, n), make([]int32, 0, n)
	for i, start := range starts[:len(starts)-1] {
		for range (starts[i+1] - start) * unit {
			windowLo, windowHi = append(windowLo, int32(start*unit)), append(windowHi, int32(starts[i+1]*unit))
		}
	}
	moved := make([]float32, 0, len(patches))
	for _, place := range order {
		moved = append(moved, patches[place*unit*each:(place+1)*unit*each]...)
	}
	b.SetFloats(Patches, moved)
	b.SetFloats(PatchRotary, v.rotary(order, columns/v.Merge))
	b.SetInts(WindowLo, windowLo)
	b.SetInts(WindowHi, windowHi)
	b.SetInts(PictureLo, make([]int32, n))
	b.SetInts(PictureHi, slices.Repeat([]int32{int32(n)}, n))
	return order, nil
}

// windows returns the places of an image ordered by window, and the offsets at which windows
// begin.
func (v *Vision) windows(rows, columns int) (order, starts []int) {
	side := v.Window / v.Merge / v.Patch
	for y := 0; y < rows; y += side {
		for x := 0; x < columns; x += side {
			starts = append(starts, len(order))
			for row := y; row < min(y+side, rows); row++ {
				for column := x; column < min(x+side, columns); column++ {
					order = append(order, row*columns+column)
				}
			}
		}
	}
	return order, append(starts, len(order))
}

// rotary returns the rotary tables of the patches of places: the first half of the pairs of a
// head encodes the row, the second half the column.
func (v *Vision) rotary(order []int, columns int) []float32 {
	head := v.Size / v.Heads
	quarter := head / 4
	frequencies := make([]float32, quarter)
	for i := range frequencies {
		frequencies[i] = 1 / float32(math.Pow(v.Theta, float64(float32(2*i)/float32(head/2))))
	}
	table := make([]float32, 0, len(order)*v.Merge*v.Merge*head)
	for _, place := range order {
		for i := range v.Merge * v.Merge {
			row, column := place/columns*v.Merge+i/v.Merge, place%columns*v.Merge+i%v.Merge
			for _, turn := range []func(float64) float64{math.Cos, math.Sin} {
				for _, at := range []int{row, column} {
					for _, f := range frequencies {
						table = append(table, float32(turn(float64(float32(at)*f))))
					}
				}
			}
		}
	}
	return table
}
