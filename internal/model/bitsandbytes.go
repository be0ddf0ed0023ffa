package model

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrQuantized reports that the tensors of a weight quantized by bitsandbytes are
// inconsistent.
var ErrQuantized = errors.New("bad quantised weight")

// These are the names of the tensors that bitsandbytes stores in addition to the codes
// NAME.weight. They are appended to NAME.weight for 4 bits, and to NAME for 8 bits.
const (
	weightSuffix    = ".weight"
	stateSuffix     = ".quant_state.bitsandbytes__"
	absmaxSuffix    = ".absmax"
	mapSuffix       = ".quant_map"
	nestedSuffix    = ".nested_absmax"
	nestedMapSuffix = ".nested_quant_map"
	scaleSuffix     = ".SCB"
	layoutSuffix    = ".weight_format"

	maxStateBytes = 1 << 16
	rowMajor      = 0 // of weight_format
)

// findStored finds the weights quantized by bitsandbytes by the tensors stored with them, and
// checks that every such tensor belongs to one.
func (m *Model) findStored() error {
	beside := map[string][]string{} // by the name of the weight
	for _, name := range m.set.Names() {
		if weight := besideWhich(name); weight != "" {
			beside[weight] = append(beside[weight], name)
		}
	}
	for _, weight := range slices.Sorted(maps.Keys(beside)) {
		p, err := m.stored4or8(weight, beside[weight])
		if err != nil {
			return fmt.Errorf("model: quantised weight %q: %w", weight, err)
		}
		m.converted[weight] = p
	}
	m.stored = len(m.converted) > 0
	if m.Config.Quantized && !m.stored {
		return fmt.Errorf("model: %w: quantization_config: found no weight in the files that bitsandbytes has quantised, expected some; take the entry out of config.json, and give quantize where it is wanted", ErrConfig)
	}
	return nil
}

// besideWhich returns the weight that a quantization tensor belongs to, or the empty string.
func besideWhich(name string) string {
	if i := strings.Index(name, weightSuffix+stateSuffix); i >= 0 {
		return name[:i] + weightSuffix
	}
	for _, suffix := range []string{absmaxSuffix, mapSuffix, nestedSuffix, nestedMapSuffix} {
		if s, ok := strings.CutSuffix(name, weightSuffix+suffix); ok {
			return s + weightSuffix
		}
	}
	for _, suffix := range []string{scaleSuffix, layoutSuffix} {
		if s, ok := strings.CutSuffix(name, suffix); ok {
			return s + weightSuffix
		}
	}
	return ""
}

func (m *Model) stored4or8(weight string, beside []string) (*converted, error) {
	r := &storedReader{m: m, weight: weight, companions: beside}
	var p *converted
	if slices.Contains(beside, strings.TrimSuffix(weight, weightSuffix)+scaleSuffix) {
		p = r.eightBit()
	} else {
		p = r.fourBit()
	}
	for _, name := range beside {
		if r.err == nil && !slices.Contains(r.read, name) {
			r.fail("tensor %q: not expected here", name)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	p.from = r.read
	return p, nil
}

// storedReader reads the tensors of one weight; the first error stays.
type storedReader struct {
	m          *Model
	weight     string
	companions []string
	read       []string
	err        error
}

func (r *storedReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %w", ErrQuantized, fmt.Errorf(format, args...))
	}
}

// view returns a tensor of one of the given types. U8 accepts any type, for tensors that are
// read as bytes.
func (r *storedReader) view(name string, dtypes ...safetensors.DType) *safetensors.View {
	if r.err != nil {
		return nil
	}
	v, err := r.m.view(name)
	if err != nil {
		r.fail("%w", err)
		return nil
	}
	r.read = append(r.read, name)
	if len(dtypes) > 0 && !slices.Contains(dtypes, v.DType) {
		r.fail("tensor %q has elements of type %v, expected %v", name, v.DType, dtypes[0])
		return nil
	}
	return v
}

// floats reads a whole tensor, of a few numbers for each block or row.
func (r *storedReader) floats(name string) []float32 {
	v := r.view(name, safetensors.F32)
	if v == nil {
		return nil
	}
	x := make([]float32, v.Len()/4)
	if err := v.WithBytes(func(data []byte) error { return tensor.ToFloat32(x, data, tensor.F32) }); err != nil {
		r.fail("%w", err)
	}
	return x
}

// bytes reads a whole tensor.
func (r *storedReader) bytes(name string, most int, dtypes ...safetensors.DType) []byte {
	v := r.view(name, dtypes...)
	if v == nil {
		return nil
	}
	if v.Len() > most {
		r.fail("tensor %q has %d bytes, expected %d at most", name, v.Len(), most)
		return nil
	}
	var b []byte
	if err := v.WithBytes(func(data []byte) error { b = slices.Clone(data); return nil }); err != nil {
		r.fail("%w", err)
	}
	return b
}

// fourBit reads the quantization state of 4-bit codes. The codes themselves are read on use.
func (r *storedReader) fourBit() *converted {
	var states []string
	for _, name := range r.companions {
		if strings.Contains(name, stateSuffix) {
			states = append(states, name)
		}
	}
	if len(states) != 1 {
		r.fail("found %d tensors %s%s… beside it, expected 1", len(states), r.weight, stateSuffix)
		return nil
	}
	text := r.bytes(states[0], maxStateBytes, safetensors.U8)
	if r.err != nil {
		return nil
	}
	state, err := quant.ParseState(text)
	if err != nil {
		r.fail("tensor %q: %w", states[0], err)
		return nil
	}
	w := quant.FourBit{State: state, Map: r.floats(r.weight + mapSuffix)}
	if state.Nested {
		w.NestedCodes = r.bytes(r.weight+absmaxSuffix, math.MaxInt, safetensors.U8)
		w.NestedScales, w.NestedMap = r.floats(r.weight+nestedSuffix), r.floats(r.weight+nestedMapSuffix)
	} else {
		w.Scales = r.floats(r.weight + absmaxSuffix)
	}
	codes := r.view(r.weight) // of any type: bnb_4bit_quant_storage
	if r.err != nil {
		return nil
	}
	if err := w.CheckSizes(codes.Len()); err != nil {
		r.fail("%w", err)
		return nil
	}
	p := &converted{dtype: state.DType, shape: state.Shape}
	p.fill = func(put func(int, []byte) error) error {
		return codes.WithBytes(func(data []byte) error {
			w := w
			w.Codes = data
			return inPieces(w.DType, w.Elements(), put, w.Blocks)
		})
	}
	return p
}

// eightBit reads the scales of LLM.int8.
func (r *storedReader) eightBit() *converted {
	name := strings.TrimSuffix(r.weight, weightSuffix)
	scb := r.floats(name + scaleSuffix)
	if slices.Contains(r.companions, name+layoutSuffix) {
		if b := r.bytes(name+layoutSuffix, 8, safetensors.U8); r.err == nil && !slices.Equal(b, []byte{rowMajor}) {
			r.fail("tensor %q is %v, expected [0]: rows one behind the other", name+layoutSuffix, b)
		}
	}
	codes := r.view(r.weight, safetensors.I8)
	if r.err != nil {
		return nil
	}
	if len(codes.Shape) != 2 || codes.Shape[0] != len(scb) {
		r.fail("tensor %q is %v, expected [%d, in] from SCB", r.weight, codes.Shape, len(scb))
		return nil
	}
	w := quant.EightBit{In: codes.Shape[1], SCB: scb}
	p := &converted{dtype: tensor.Q8, shape: slices.Clone(codes.Shape)}
	if !w.InBlocks() {
		p.dtype = tensor.F32
	}
	p.fill = func(put func(int, []byte) error) error {
		return codes.WithBytes(func(data []byte) error {
			w := w
			w.Codes = data
			if w.InBlocks() {
				return inPieces(tensor.Q8, len(data), put, w.Blocks)
			}
			return inFloats(len(data), put, w.Float32s)
		})
	}
	return p
}

// inPieces passes the blocks of n elements to put, a few at a time.
func inPieces(d tensor.DType, n int, put func(int, []byte) error, blocks func(dst []byte, first int) error) error {
	buffer := make([]byte, d.Bytes(pieceElements))
	for first := 0; first < n; first += pieceElements {
		piece := buffer[:d.Bytes(min(pieceElements, n-first))]
		if err := blocks(piece, first/tensor.QuantBlock); err != nil {
			return err
		}
		if err := put(d.Bytes(first), piece); err != nil {
			return err
		}
	}
	return nil
}

// inFloats passes n elements to put as F32, a few at a time.
func inFloats(n int, put func(int, []byte) error, elements func(dst []float32, first int) error) error {
	values := make([]float32, pieceElements)
	data := make([]byte, 4*pieceElements)
	for first := 0; first < n; first += pieceElements {
		piece := values[:min(pieceElements, n-first)]
		if err := elements(piece, first); err != nil {
			return err
		}
		if err := tensor.FromFloat32(data[:4*len(piece)], piece, tensor.F32); err != nil {
			return err
		}
		if err := put(4*first, data[:4*len(piece)]); err != nil {
			return err
		}
	}
	return nil
}
