package quant

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// State describes how bitsandbytes has quantized a weight to 4 bits. It is
// encoded as JSON in the tensor NAME.quant_state.bitsandbytes__nf4, or __fp4.
type State struct {
	DType     tensor.DType // NF4 or FP4
	Shape     []int        // [out, in]
	BlockSize int          // elements per scale: a multiple of 64
	// Nested reports whether the scales are quantized too: each group of
	// NestedBlockSize scales has a scale of its own, after NestedOffset was
	// subtracted.
	Nested          bool
	NestedBlockSize int
	NestedOffset    float32
}

// Elements returns the number of weights.
func (s *State) Elements() int { return s.Shape[0] * s.Shape[1] }

// ParseState parses the JSON text. It fails with ErrFormat, which names the
// key.
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

// show returns the value p points to for an error message, or "nothing".
func show[T any](p *T) any {
	if p == nil {
		return "nothing"
	}
	return *p
}

// FourBit is a weight quantized to 4 bits by bitsandbytes, in the form of its
// tensors.
type FourBit struct {
	*State
	Codes []byte // two per byte, the first in the upper half
	// Scales holds the absmax of the blocks if they are not nested. Otherwise
	// NestedCodes encodes them as fractions of NestedScales, through NestedMap,
	// a code book of 256 numbers.
	Scales                  []float32
	NestedCodes             []byte
	NestedScales, NestedMap []float32
	Map                     []float32 // the code book of the weights, as defined by the DType
}

// CheckSizes checks that the tensors have the sizes implied by the state, and Map
// the numbers of the DType, before the codes have been read, given their number
// of bytes. It fails with ErrFormat, which names the tensor.
func (w *FourBit) CheckSizes(codes int) error {
	n := w.Elements()
	blocks := (n + w.BlockSize - 1) / w.BlockSize
	sizes := []struct {
		name        string
		found, want int
	}{{"weight", codes, (n + 1) / 2}, {"quant_map", len(w.Map), 16}, {"absmax", len(w.Scales), blocks}}
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
		// bitsandbytes compares two states with this tolerance; its kernels
		// have the numbers built in as well.
		if math.Abs(float64(x-w.Map[i])) > 1e-6 {
			return fmt.Errorf("quant: quant_map: element %d is %v, expected %v of %v: %w", i, w.Map[i], x, w.DType, ErrFormat)
		}
	}
	return nil
}

// scale returns the scale of the block that contains element i, as bitsandbytes
// computes it.
func (w *FourBit) scale(i int) float32 {
	b := i / w.BlockSize
	if !w.Nested {
		return w.Scales[b]
	}
	x := w.NestedMap[w.NestedCodes[b]] * w.NestedScales[b/w.NestedBlockSize]
	return float32(x) + w.NestedOffset
}

// Blocks writes as many blocks of the weight as fit into dst, from block number
// first. Codes and scales are the same as in bitsandbytes, so the numbers are
// too. The weight must have passed CheckSizes. It fails with ErrLength if dst is not
// an integral number of blocks or extends past the last block.
func (w *FourBit) Blocks(dst []byte, first int) error {
	const half, quarter = block / 2, block / 4
	size := w.DType.BlockBytes()
	if err := checkBlocks(dst, first, w.Elements(), w.DType); err != nil {
		return err
	}
	var last [half]byte
	for b := first; len(dst) > 0; b++ {
		src, to := w.Codes[b*half:], dst[:size]
		dst = dst[size:]
		if len(src) < half {
			copy(last[:], src)
			src = last[:]
		}
		for i := range quarter { // elements 2i and 2i+1, and the elements 32 later
			x, y := src[i], src[quarter+i]
			to[2*i] = x>>4 | y&0xf0
			to[2*i+1] = x&0xf | y<<4
		}
		putScale(to[half:], w.scale(b*block))
	}
	return nil
}

// EightBit is a weight quantized to 8 bits by bitsandbytes (LLM.int8), in the
// form of its tensors.
type EightBit struct {
	In    int       // length of a row
	Codes []byte    // [out, in] signed
	SCB   []float32 // [out]: the largest magnitude of each row
}

// InBlocks reports whether rows consist of whole blocks, as Blocks requires.
func (w *EightBit) InBlocks() bool { return w.In%block == 0 }

// Blocks writes as many blocks of Q8 as fit into dst, from block number first.
// All blocks of a row have the same scale, SCB/127. It fails with ErrFormat if
// rows are not an integral number of blocks (see Float32s), and with ErrLength
// as FourBit.Blocks does.
func (w *EightBit) Blocks(dst []byte, first int) error {
	if !w.InBlocks() {
		return fmt.Errorf("quant: rows of %d elements, expected a multiple of %d: %w", w.In, block, ErrFormat)
	}
	if err := checkBlocks(dst, first, len(w.Codes), tensor.Q8); err != nil {
		return err
	}
	const size = block + 4
	for b := first; len(dst) > 0; b++ {
		copy(dst, w.Codes[b*block:][:block])
		putScale(dst[block:], w.SCB[b*block/w.In]/127)
		dst = dst[size:]
	}
	return nil
}

// Float32s writes len(dst) elements from element first. It fails with ErrLength
// if there are fewer.
func (w *EightBit) Float32s(dst []float32, first int) error {
	if first < 0 || first+len(dst) > len(w.Codes) {
		return fmt.Errorf("quant: elements %d to %d of %d: %w", first, first+len(dst), len(w.Codes), ErrLength)
	}
	for i := range dst {
		dst[i] = float32(int8(w.Codes[first+i])) * (w.SCB[(first+i)/w.In] / 127)
	}
	return nil
}

// checkBlocks checks that dst is an integral number of blocks, from block first,
// of a weight of n elements.
func checkBlocks(dst []byte, first, n int, d tensor.DType) error {
	size, all := d.BlockBytes(), d.Bytes(n)
	if len(dst)%size != 0 || first < 0 || first > all/size || len(dst) > all-first*size {
		return fmt.Errorf("quant: %d bytes from block %d of %d elements of %v, in blocks of %d: %w", len(dst), first, n, d, size, ErrLength)
	}
	return nil
}
