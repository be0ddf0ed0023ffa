package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// float8Config holds the keys of quantization_config for weights in 8-bit floats.
type float8Config struct {
	Method string // quant_method
	// Block is the number of rows and columns that share a scale; zeros mean that a weight or a
	// row has one scale.
	Block [2]int
	// Activations names the rounding of activations in other programs. Here they are not rounded.
	Activations string
}

// usualBlock is the default of weight_block_size.
var usualBlock = [2]int{128, 128}

// fineGrained reads a quantization_config of quant_method fp8.
func (f *Fields) fineGrained() *float8Config {
	const block = "weight_block_size"
	c := &float8Config{Method: "fp8", Activations: "activation_scheme " + f.String("activation_scheme", "dynamic")}
	if sizes := f.Ints(block, usualBlock[:]...); !f.Null(block) {
		if len(sizes) != 2 || min(sizes[0], sizes[1]) < 1 {
			f.Fail(block, sizes, "two numbers of at least 1, or null")
			return c
		}
		c.Block = [2]int(sizes)
	}
	for key, want := range ordered(map[string]string{"scale_fmt": "float", "expert_dtype": "fp8", "fmt": "e4m3"}) {
		if found := f.String(key, want); found != want {
			f.Unsupported(key, found, []string{want})
		}
	}
	return c
}

// compressedTensors reads a quantization_config of quant_method compressed-tensors.
func (f *Fields) compressedTensors() *float8Config {
	const format, groups = "format", "config_groups"
	c := &float8Config{Method: "compressed-tensors", Activations: "input_activations"}
	if found := f.String(format, "nothing"); found != "float-quantized" && found != "naive-quantized" {
		f.Unsupported(format, found, []string{"float-quantized", "naive-quantized"})
		return c
	}
	for _, key := range []string{"sparsity_config", "transform_config"} {
		o := f.Object(key)
		if len(o.values) > 0 && o.String(format, "") != "dense" && f.err == nil {
			f.err = fmt.Errorf("%w: %s: found %s, expected none", ErrUnsupported, key, f.values[key])
		}
	}
	all := f.Object(groups)
	if len(all.values) == 0 {
		f.Fail(groups, "nothing", "groups of weights")
	}
	for name := range ordered(all.values) {
		group := all.Object(name)
		w := group.Object("weights")
		w.floats8(c)
		if err := cmp.Or(all.err, group.err, w.err); err != nil && f.err == nil {
			f.err = fmt.Errorf("%s.%s.weights: %w", groups, name, err)
		}
	}
	return c
}

// floats8 reads how compressed-tensors stores the weights of a group.
func (f *Fields) floats8(c *float8Config) {
	if kind := fmt.Sprintf("%s of %d bits", f.String("type", "int"), f.Int("num_bits", 8)); kind != "float of 8 bits" {
		f.Unsupported("type", kind, []string{"float of 8 bits"})
	}
	if !f.Bool("symmetric", true) {
		f.Unsupported("symmetric", false, []string{"true"})
	}
	switch strategy := f.String("strategy", "tensor"); strategy {
	case "tensor", "channel":
	case "block":
		const key = "block_structure"
		sizes := f.Ints(key)
		if len(sizes) != 2 || min(sizes[0], sizes[1]) < 1 {
			f.Fail(key, sizes, "two numbers of at least 1")
			return
		}
		c.Block = [2]int(sizes)
	default:
		f.Unsupported("strategy", strategy, []string{"tensor", "channel", "block"})
	}
}

// scaleNames are the suffixes that tools append to a module's name for the scale of its weight:
// transformers, compressed-tensors and vLLM, ComfyUI. All of them multiply.
var scaleNames = []string{".weight_scale_inv", ".weight_scale", ".scale_weight"}

// stackScaleNames are the suffixes for stacks of experts, of transformers 5.
var stackScaleNames = []string{"_scale_inv"}

// Float8Grid divides a weight in 8-bit floats into blocks with a scale each.
type Float8Grid struct {
	Shape []int  // of the tensor of scales
	Rows  int    // of a matrix of the weight; blocks end with it
	In    int    // columns of the weight
	Block [2]int // rows and columns of a block
}

// Down returns the number of blocks in a column of a matrix.
func (g *Float8Grid) Down() int { return (g.Rows + g.Block[0] - 1) / g.Block[0] }

// Across returns the number of blocks in a row.
func (g *Float8Grid) Across() int { return (g.In + g.Block[1] - 1) / g.Block[1] }

// Index returns the number of the scale of an element of the weight.
func (g *Float8Grid) Index(i int) int { return g.block().Index(g.Rows, g.In, i) }

func (g *Float8Grid) block() ir.DequantizeAttr {
	return ir.DequantizeAttr{Rows: g.Block[0], Columns: g.Block[1]}
}

// storedScale is the tensor of the scales of a weight in 8-bit floats.
type storedScale struct {
	Float8Grid
	stack []int // the number of matrices of a stack; empty for a matrix
	view  *safetensors.View
}

// isExperts reports whether a tensor is a stack of the matrices of experts, [experts, out, in].
func isExperts(name string, v *safetensors.View) bool {
	return len(v.Shape) == 3 && !strings.HasSuffix(name, weightSuffix) && numbered.MatchString(name)
}

// storedScale finds the scales that are stored for a weight. There is one, or one for each row or
// each block; in a stack, each matrix has its own. It returns nil if there are none.
func (m *Model) storedScale(name string, weight *safetensors.View) (*storedScale, error) {
	config := m.Config.float8
	module, ok := strings.CutSuffix(name, weightSuffix)
	names, shape, stack := scaleNames, weight.Shape, []int(nil)
	if isExperts(name, weight) {
		ok, names, stack, shape = true, stackScaleNames, shape[:1], shape[1:]
	}
	for _, suffix := range names {
		if !ok || !m.set.Has(module+suffix) {
			continue
		}
		v, err := m.set.Lookup(module + suffix)
		if err != nil {
			return nil, err
		}
		s := &storedScale{view: v, stack: stack}
		s.Shape, s.Rows, s.In = v.Shape, shape[0], 1
		for _, n := range shape[1:] {
			s.In *= n
		}
		block := usualBlock
		if config != nil {
			block = config.Block
		}
		return s, s.divide(block)
	}
	if config != nil {
		return nil, fmt.Errorf("%w: quant_method %q: found no scale, expected the tensor %s%s", ErrQuantized, config.Method, module, strings.Join(names[:min(2, len(names))], " or "+module))
	}
	return nil, nil
}

// divide finds out which elements share a scale. block is the size of the blocks that the
// weight may be divided into; zeros mean that it may not.
func (s *storedScale) divide(block [2]int) error {
	d, err := tensor.ParseDType(s.view.DType.String())
	n, shapeErr := tensor.NumElements(s.Shape)
	expected := fmt.Sprintf("one float, or one for each of %d rows", s.Rows)
	if s.stack != nil {
		expected += fmt.Sprintf(", of each of %d matrices", s.stack[0])
	}
	is := func(each ...int) bool { return slices.Equal(s.Shape, slices.Concat(s.stack, each)) }
	if err == nil && d.IsFloat() && shapeErr == nil && s.Rows > 0 && s.In > 0 {
		switch {
		case s.stack == nil && n == 1, s.stack != nil && (is() || is(1, 1)):
			s.Block = [2]int{s.Rows, s.In}
			return nil
		case is(s.Rows), is(s.Rows, 1):
			s.Block = [2]int{1, s.In}
			return nil
		}
	}
	if block[0] > 0 && s.Rows > 0 && s.In > 0 {
		s.Block = block
		grid := slices.Concat(s.stack, []int{s.Down(), s.Across()})
		if err == nil && d.IsFloat() && slices.Equal(s.Shape, grid) {
			return nil
		}
		expected += fmt.Sprintf(", or %v for blocks of %v", grid, block)
	}
	return fmt.Errorf("%w: %s is %v %v, expected %s", ErrQuantized, s.view.Name, s.view.DType, s.Shape, expected)
}

// read returns the scales.
func (s *storedScale) read() (scale []float32, err error) {
	d, err := tensor.ParseDType(s.view.DType.String())
	if err != nil {
		return nil, err
	}
	if err = s.view.WithBytes(func(data []byte) error {
		scale, err = tensor.Tensor{DType: d, Shape: s.Shape, Data: data}.Float32s()
		return err
	}); err != nil {
		return nil, err
	}
	for i, x := range scale {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%s: element %d is %v: %w", s.view.Name, i, x, quant.ErrNotFinite)
		}
	}
	return scale, nil
}

// converted returns the scales as devices have them: one for each row, or one for each block if
// several blocks are in a row.
func (s *storedScale) converted() *converted {
	if s.Across() > 1 {
		return scalesOf(s.view.Name, append(slices.Clone(s.stack), s.Down(), s.Across()), s.block(), s.read)
	}
	return scalesOf(s.view.Name, append(slices.Clone(s.stack), s.Rows, 1), ir.DequantizeAttr{Rows: 1, Columns: s.In}, s.byRow)
}

// byRow returns the scale of each row in turn.
func (s *storedScale) byRow() ([]float32, error) {
	scale, err := s.read()
	if err != nil {
		return nil, err
	}
	down := s.Down()
	all := make([]float32, 0, len(scale)/down*s.Rows)
	for matrix := range slices.Chunk(scale, down) {
		for row := range s.Rows {
			all = append(all, matrix[row/s.Block[0]])
		}
	}
	return all, nil
}
