package quant

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// State says how bitsandbytes has quantised a weight to 4 bits. It is the JSON
// text in the tensor NAME.quant_state.bitsandbytes__nf4, or __fp4.
type State struct {
	DType     tensor.DType // NF4 or FP4
	Shape     []int        // [out, in]
	BlockSize int          // elements with one scale: a multiple of 64
	// Nested says that the scales are quantised themselves, NestedBlockSize of
	// them with one scale, after NestedOffset was taken from each.
	Nested          bool
	NestedBlockSize int
	NestedOffset    float32
}

// Elements is the number of the weights.
func (s *State) Elements() int { return s.Shape[0] * s.Shape[1] }

// ParseState reads the text. It fails with ErrFormat, which names the key.
func ParseState(text []byte) (*State, error) {
	var raw struct {
		QuantType       string   `json:"quant_type"`
		BlockSize       int      `json:"blocksize"`
		Shape           []int    `json:"shape"`
		NestedBlockSize *int     `json:"nested_blocksize"`
		NestedDType     *string  `json:"nested_dtype"`
		NestedOffset    *float64 `json:"nested_offset"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("quant: quant_state: %w: %w", ErrFormat, err)
	}
	fail := func(key string, found any, want string) error {
		return fmt.Errorf("quant: quant_state: %s: found %v, expected %s: %w", key, found, want, ErrFormat)
	}
	s := &State{Shape: raw.Shape, BlockSize: raw.BlockSize}
	switch raw.QuantType {
	case "nf4":
		s.DType = tensor.NF4
	case "fp4":
		s.DType = tensor.FP4
	default:
		return nil, fail("quant_type", fmt.Sprintf("%q", raw.QuantType), "nf4 or fp4")
	}
	if s.BlockSize < block || s.BlockSize%block != 0 {
		return nil, fail("blocksize", s.BlockSize, "a multiple of 64")
	}
	const most = 1 << 30
	if len(s.Shape) != 2 || min(s.Shape[0], s.Shape[1]) < 1 || max(s.Shape[0], s.Shape[1]) > most {
		return nil, fail("shape", s.Shape, "[out, in]")
	}
	if raw.NestedBlockSize == nil && raw.NestedOffset == nil {
		return s, nil
	}
	switch {
	case raw.NestedBlockSize == nil || *raw.NestedBlockSize < 1:
		return nil, fail("nested_blocksize", show(raw.NestedBlockSize), "1 or more")
	case raw.NestedOffset == nil || math.Abs(*raw.NestedOffset) > math.MaxFloat32:
		return nil, fail("nested_offset", show(raw.NestedOffset), "a float32")
	case raw.NestedDType == nil || *raw.NestedDType != "float32":
		return nil, fail("nested_dtype", show(raw.NestedDType), "float32")
	}
	s.Nested, s.NestedBlockSize, s.NestedOffset = true, *raw.NestedBlockSize, float32(*raw.NestedOffset)
	return s, nil
}

// show is what p points to, or that there is nothing.
func show[T any](p *T) any {
	if p == nil {
		return "nothing"
	}
	return *p
}

// FourBit is a weight that bitsandbytes has quantised to 4 bits, as it lies in
// its tensors.
type FourBit struct {
	*State
	Codes []byte // two to a byte, the first in the upper half
	// Scales are the absmax of the blocks where they are not nested; else
	// NestedCodes stand for them, in parts of NestedScales and by the code
	// book NestedMap of 256 numbers.
	Scales                  []float32
	NestedCodes             []byte
	NestedScales, NestedMap []float32
	Map                     []float32 // the code book of the weights: that of the DType
}

// Check reports whether the tensors have the sizes that the state asks for. It
// fails with ErrFormat, which names the tensor.
func (w *FourBit) Check() error {
	n := w.Elements()
	blocks := (n + w.BlockSize - 1) / w.BlockSize
	sizes := []struct {
		name        string
		found, want int
	}{{"weight", len(w.Codes), (n + 1) / 2}, {"quant_map", len(w.Map), 16}, {"absmax", len(w.Scales), blocks}}
	if w.Nested {
		sizes[2].found = len(w.NestedCodes)
		sizes = append(sizes, []struct {
			name        string
			found, want int
		}{
			{"nested_absmax", len(w.NestedScales), (blocks + w.NestedBlockSize - 1) / w.NestedBlockSize},
			{"nested_quant_map", len(w.NestedMap), 256},
		}...)
	}
	for _, s := range sizes {
		if s.found != s.want {
			return fmt.Errorf("quant: %s: %d elements, expected %d for %v%v in blocks of %d: %w", s.name, s.found, s.want, w.DType, w.Shape, w.BlockSize, ErrFormat)
		}
	}
	for i, x := range Code(w.DType) {
		// As near as bitsandbytes itself wants two states to be; its kernels
		// have the numbers built in as well.
		if math.Abs(float64(x-w.Map[i])) > 1e-6 {
			return fmt.Errorf("quant: quant_map: element %d is %v, expected %v of %v: %w", i, w.Map[i], x, w.DType, ErrFormat)
		}
	}
	return nil
}

// scale is that of the block that element i is in, as bitsandbytes computes it.
func (w *FourBit) scale(i int) float32 {
	b := i / w.BlockSize
	if !w.Nested {
		return w.Scales[b]
	}
	x := w.NestedMap[w.NestedCodes[b]] * w.NestedScales[b/w.NestedBlockSize]
	return float32(x) + w.NestedOffset
}

// Blocks writes the weight as blocks of its DType; dst has DType.Bytes of its
// elements. Codes and scales are those of bitsandbytes, so the numbers are, too.
// Errors: those of Check, and ErrLength.
func (w *FourBit) Blocks(dst []byte) error {
	if err := w.Check(); err != nil {
		return err
	}
	if err := checkLength(w.Elements(), len(dst), w.DType); err != nil {
		return err
	}
	const half, quarter = block / 2, block / 4
	size := w.DType.BlockBytes()
	var last [half]byte
	for b := 0; b*size < len(dst); b++ {
		src, to := w.Codes[b*half:], dst[b*size:][:size]
		if len(src) < half {
			copy(last[:], src)
			src = last[:]
		}
		for i := range quarter { // elements 2i and 2i+1, and those 32 later
			x, y := src[i], src[quarter+i]
			to[2*i] = x>>4 | y&0xf0
			to[2*i+1] = x&0xf | y<<4
		}
		putScale(to[half:], w.scale(b*block))
	}
	return nil
}

// Rows8 writes a weight that bitsandbytes has quantised to 8 bits (LLM.int8),
// codes [out, in] of signed bytes and the largest magnitudes scb [out] of the
// rows, as blocks of Q8: those of a row have the same scale, scb/127. dst has
// tensor.Q8.Bytes of the elements. It fails with ErrLength, and where rows are
// no whole number of blocks with ErrFormat: Float32Rows8 is for them.
func Rows8(dst, codes []byte, scb []float32, in int) error {
	if err := checkRows8(codes, scb, in); err != nil {
		return err
	}
	if in%block != 0 {
		return fmt.Errorf("quant: rows of %d elements, expected a multiple of %d: %w", in, block, ErrFormat)
	}
	if err := checkLength(len(codes), len(dst), tensor.Q8); err != nil {
		return err
	}
	const size = block + 4
	for b := 0; b*size < len(dst); b++ {
		copy(dst[b*size:], codes[b*block:][:block])
		putScale(dst[b*size+block:], scb[b*block/in]/127)
	}
	return nil
}

// Float32Rows8 is what Rows8 stands for, as numbers.
func Float32Rows8(dst []float32, codes []byte, scb []float32, in int) error {
	if err := checkRows8(codes, scb, in); err != nil {
		return err
	}
	if len(dst) != len(codes) {
		return fmt.Errorf("quant: %d numbers of %d codes: %w", len(dst), len(codes), ErrLength)
	}
	for i, c := range codes {
		dst[i] = float32(int8(c)) * (scb[i/in] / 127)
	}
	return nil
}

func checkRows8(codes []byte, scb []float32, in int) error {
	if in < 1 || len(codes) != len(scb)*in {
		return fmt.Errorf("quant: %d codes, %d scales (SCB) and rows of %d: %w", len(codes), len(scb), in, ErrLength)
	}
	return nil
}
