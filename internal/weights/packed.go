package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrPacked reports that the tensors of a GPTQ or AWQ weight contradict each other or the
// configuration.
var ErrPacked = errors.New("bad quantised weight")

// These are the tensors of a linear layer NAME in a GPTQ or AWQ checkpoint. The packed ones are
// I32 and hold several codes in each element, the first in the lowest bits.
const (
	packedCodes  = ".qweight" // GPTQ [in·bits/32, out]: columns; AWQ [in, out/8]: rows
	packedZeros  = ".qzeros"  // [groups, out·bits/32]: rows
	packedScales = ".scales"  // [groups, out]
	packedGroups = ".g_idx"   // I32 [in]: the group of each input, of GPTQ
	packedWeight = ".weight"
)

// awqOrder has the position of each of eight neighbouring outputs in an element of AWQ.
var awqOrder = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// Packing describes how the weights of linear layers are stored by GPTQ or AWQ.
type Packing struct {
	AWQ bool
	// Shifted reports that zero points are stored minus one: the first format of GPTQ.
	Shifted bool
	// Bits and Groups list the bits of a code and the inputs of a group that layers may have.
	// A group of -1 has all inputs.
	Bits, Groups []int
}

// HasPacked reports whether the set has weights that GPTQ or AWQ may have stored.
func (s *Set) HasPacked() bool {
	return slices.ContainsFunc(s.Names(), func(name string) bool { return strings.HasSuffix(name, packedCodes) })
}

// Unpack returns a set that has the weight NAME.weight [out, in], f32, of every linear layer
// that s stores packed, in place of its tensors. The weight is computed when it is read: a scale
// times the difference of code and zero point, without rounding. [Set.Blocks] has it in blocks
// of Z4 or Z8 if 32 neighbouring inputs share a group and the scales are f16. Closing the set
// closes s. Errors: ErrPacked.
func (s *Set) Unpack(p Packing) (*Set, error) {
	u := *s
	u.Set, u.packed, u.converts, u.blockTypes = nil, s, true, map[string]Blocks{}
	var files []*safetensors.File
	var blocks []safetensors.ExternalTensor
	fail := func(err error) (*Set, error) {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	for _, f := range s.Files() {
		var tensors []safetensors.ExternalTensor
		for _, name := range f.Names() {
			if s.isPacked(name) {
				continue
			}
			module, ok := strings.CutSuffix(name, packedCodes)
			if !ok {
				t, err := f.Lookup(name)
				if err != nil {
					return fail(err)
				}
				tensors = append(tensors, external(t))
				continue
			}
			m, err := s.packedMatrix(module, p)
			if err != nil {
				return fail(fmt.Errorf("weights: %s: layer %q: %w", f.Path(), module, err))
			}
			weight, shape := module+packedWeight, []int{m.out, m.in}
			tensors = append(tensors, safetensors.ExternalTensor{Name: weight, DType: safetensors.F32, Shape: shape, Reader: &packedRows{m, tensor.F32}})
			if d := m.blockType(); d != tensor.Invalid {
				u.blockTypes[weight] = Blocks{DType: d, Shape: shape}
				blocks = append(blocks, safetensors.ExternalTensor{Name: weight, DType: safetensors.U8, Shape: []int{m.out, d.Bytes(m.in)}, Reader: &packedRows{m, d}})
			}
			u.packedNames = append(u.packedNames, weight)
		}
		placed, err := safetensors.OpenExternal(f.Path(), tensors, f.Metadata())
		if err != nil {
			return fail(fmt.Errorf("weights: %w", err))
		}
		files = append(files, placed)
	}
	slices.Sort(u.packedNames)
	var err error
	if u.blocks, err = safetensors.OpenExternal(files[0].Path(), blocks, nil); err != nil {
		return fail(fmt.Errorf("weights: %w", err))
	}
	u.Set = safetensors.NewSet(files[0], files[1:]...)
	return &u, nil
}

// PackedWeights returns the sorted names of the weights that Unpack has unpacked.
func (s *Set) PackedWeights() []string { return s.packedNames }

// isPacked reports whether a tensor belongs to the codes of a layer.
func (s *Set) isPacked(name string) bool {
	for _, suffix := range []string{packedZeros, packedScales, packedGroups} {
		if module, ok := strings.CutSuffix(name, suffix); ok {
			return s.Has(module + packedCodes)
		}
	}
	return false
}

// external returns a tensor of an open file as a tensor of another.
func external(v *safetensors.View) safetensors.ExternalTensor {
	t := safetensors.ExternalTensor{Name: v.Name, DType: v.DType, Shape: v.Shape}
	if _, at, _ := v.Extent(); v.InPlace() && at >= 0 {
		t.Offset = at
	} else {
		t.Reader = v
	}
	return t
}

// packedMatrix is the weight [out, in] of a layer.
type packedMatrix struct {
	Packing
	bits, out, in        int
	group                []int32 // of each input
	codes, zeros, scales *safetensors.View
	scaleType            tensor.DType
	exact, shared        bool // exact: scales are f16; shared: 32 neighbouring inputs have a group
}

// packedMatrix finds the tensors of a layer and checks them.
func (s *Set) packedMatrix(module string, p Packing) (m *packedMatrix, err error) {
	m = &packedMatrix{Packing: p}
	if s.Has(module + packedWeight) {
		return nil, fmt.Errorf("%w: found %s%s too, expected only one of the two", ErrPacked, module, packedWeight)
	}
	view := func(suffix string, dtypes ...safetensors.DType) (v *safetensors.View) {
		if err != nil {
			return nil
		}
		if v, err = s.Lookup(module + suffix); err != nil {
			return nil
		}
		rank := 2
		if suffix == packedGroups {
			rank = 1
		}
		if len(v.Shape) != rank || !slices.Contains(dtypes, v.DType) || slices.Contains(v.Shape, 0) {
			err = fmt.Errorf("%w: %s is %v %v, expected %v with %d axes", ErrPacked, v.Name, v.DType, v.Shape, dtypes[0], rank)
		}
		return v
	}
	m.codes, m.zeros = view(packedCodes, safetensors.I32, safetensors.U32), view(packedZeros, safetensors.I32, safetensors.U32)
	m.scales = view(packedScales, safetensors.F16, safetensors.BF16, safetensors.F32)
	var groups *safetensors.View
	if s.Has(module+packedGroups) && !p.AWQ {
		groups = view(packedGroups, safetensors.I32, safetensors.I64)
	}
	if err != nil {
		return nil, err
	}
	if m.scaleType, err = tensor.ParseDType(m.scales.DType.String()); err != nil {
		return nil, err
	}
	m.out = m.scales.Shape[1]
	if !m.findBits(groups) {
		return nil, fmt.Errorf("%w: codes %v, zero points %v and scales %v do not fit each other with %v bits", ErrPacked, m.codes.Shape, m.zeros.Shape, m.scales.Shape, p.Bits)
	}
	if err := m.findGroups(groups); err != nil {
		return nil, err
	}
	return m, m.findExact()
}

// words returns the number of elements that hold n codes.
func words(n, bits int) int { return (n*bits + 31) / 32 }

// findBits finds the bits of a code from the shapes.
func (m *packedMatrix) findBits(groups *safetensors.View) bool {
	codes, zeros, scales := m.codes.Shape, m.zeros.Shape, m.scales.Shape
	for _, bits := range m.Bits {
		m.bits, m.in = bits, codes[0]*32/bits
		if m.AWQ {
			m.in = codes[0]
		} else if groups != nil {
			m.in = groups.Shape[0]
		}
		fits := codes[1] == m.out && codes[0] == words(m.in, bits)
		if m.AWQ {
			fits = codes[1] == words(m.out, bits) && m.out%8 == 0
		}
		if fits && zeros[0] == scales[0] && zeros[1] == words(m.out, bits) {
			return true
		}
	}
	return false
}

// findGroups finds the group of each input.
func (m *packedMatrix) findGroups(groups *safetensors.View) error {
	count := m.scales.Shape[0]
	m.group = make([]int32, m.in)
	if groups == nil {
		for _, size := range m.Groups {
			if size < 0 {
				size = m.in
			}
			if size > 0 && (m.in+size-1)/size == count {
				for i := range m.group {
					m.group[i] = int32(i / size)
				}
				return nil
			}
		}
		return fmt.Errorf("%w: found %d groups of %d inputs, expected a group_size of %v", ErrPacked, count, m.in, m.Groups)
	}
	return groups.WithBytes(func(data []byte) error {
		size := len(data) / m.in
		for i := range m.group {
			g := int64(int32(binary.LittleEndian.Uint32(data[i*size:])))
			if size == 8 {
				g = int64(binary.LittleEndian.Uint64(data[i*size:]))
			}
			if g < 0 || g >= int64(count) {
				return fmt.Errorf("%w: %s: element %d is %d, expected 0 to %d", ErrPacked, groups.Name, i, g, count-1)
			}
			m.group[i] = int32(g)
		}
		return nil
	})
}

// findExact finds out whether blocks represent the weight.
func (m *packedMatrix) findExact() error {
	const n = 32
	m.shared = m.in%n == 0
	for i, g := range m.group {
		m.shared = m.shared && g == m.group[i/n*n]
	}
	if m.exact = true; m.scaleType == tensor.F16 || !m.shared {
		return nil
	}
	return m.scales.WithBytes(func(data []byte) error {
		values, err := tensor.Tensor{DType: m.scaleType, Shape: m.scales.Shape, Data: data}.Float32s()
		m.exact = !slices.ContainsFunc(values, func(x float32) bool { return tensor.F16ToFloat32(tensor.Float32ToF16(x)) != x })
		return err
	})
}

// blockType returns the type of the blocks that represent the weight, or Invalid if none do.
func (m *packedMatrix) blockType() tensor.DType {
	switch {
	case !m.exact || !m.shared:
		return tensor.Invalid
	case m.bits > 4:
		return tensor.Z8
	}
	return tensor.Z4
}

// packedTile has rows of a weight: of each row the codes of all inputs, and zero points and
// scales of all groups.
type packedTile struct {
	codes, zeros []byte
	scales       []float32
}

// tileRows is the number of rows in a tile: neighbouring elements of the codes of GPTQ, which
// are stored by columns.
const tileRows = 16

// read fills t with n rows from row first on.
func (m *packedMatrix) read(t *packedTile, first, n int) error {
	groups := m.scales.Shape[0]
	t.codes, t.zeros, t.scales = slices.Grow(t.codes[:0], n*m.in)[:n*m.in], slices.Grow(t.zeros[:0], n*groups)[:n*groups], slices.Grow(t.scales[:0], n*groups)[:n*groups]
	err := m.codes.WithBytes(func(data []byte) error {
		if m.AWQ {
			m.unpackRows(t.codes, data, m.in, first, n, false)
		} else {
			m.unpackColumns(t.codes, data, first, n)
		}
		return nil
	})
	if err == nil {
		err = m.zeros.WithBytes(func(data []byte) error { m.unpackRows(t.zeros, data, groups, first, n, m.Shifted); return nil })
	}
	if err != nil {
		return err
	}
	return m.scales.WithBytes(func(data []byte) error {
		size := m.scaleType.Size()
		row := make([]float32, n)
		for g := range groups {
			if err := tensor.ToFloat32(row, data[(g*m.out+first)*size:][:n*size], m.scaleType); err != nil {
				return err
			}
			for j, x := range row {
				if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
					return fmt.Errorf("%s: element %d is %v: %w", m.scales.Name, g*m.out+first+j, x, quant.ErrNotFinite)
				}
				t.scales[j*groups+g] = x
			}
		}
		return nil
	})
}

// unpackColumns unpacks codes that are packed along the inputs.
func (m *packedMatrix) unpackColumns(dst, data []byte, first, n int) {
	mask := uint32(1)<<m.bits - 1
	for i := range m.in {
		at, shift := i*m.bits/32, i*m.bits%32
		row := data[(at*m.out+first)*4:]
		if shift+m.bits <= 32 {
			for j := range n {
				dst[j*m.in+i] = byte(binary.LittleEndian.Uint32(row[4*j:]) >> shift & mask)
			}
			continue
		}
		next := data[((at+1)*m.out+first)*4:]
		for j := range n {
			dst[j*m.in+i] = byte((binary.LittleEndian.Uint32(row[4*j:])>>shift | binary.LittleEndian.Uint32(next[4*j:])<<(32-shift)) & mask)
		}
	}
}

// unpackRows unpacks numbers that are packed along the outputs, and adds one to them if they are
// shifted: as GPTQModel does, to all that share an element, with carries between those that do
// not straddle two.
func (m *packedMatrix) unpackRows(dst, data []byte, rows, first, n int, shifted bool) {
	width, mask, straddle := words(m.out, m.bits), uint32(1)<<m.bits-1, 32%m.bits > 0
	ones := uint32(0)
	for b := 0; b < 32 && shifted && !straddle; b += m.bits {
		ones |= 1 << b
	}
	for i := range rows {
		row := data[i*width*4:]
		for j := range n {
			o := first + j
			if m.AWQ {
				o = o&^7 | awqOrder[o&7]
			}
			at, shift := o*m.bits/32, o*m.bits%32
			x := (binary.LittleEndian.Uint32(row[4*at:]) + ones) >> shift
			if shift+m.bits > 32 {
				x |= binary.LittleEndian.Uint32(row[4*at+4:]) << (32 - shift)
			}
			if shifted && straddle {
				x++
			}
			dst[j*rows+i] = byte(x & mask)
		}
	}
}

// encode writes row j of a tile as elements or blocks of type d.
func (m *packedMatrix) encode(dst []byte, t *packedTile, j int, d tensor.DType) {
	groups := m.scales.Shape[0]
	codes, zeros, scales := t.codes[j*m.in:][:m.in], t.zeros[j*groups:][:groups], t.scales[j*groups:][:groups]
	if d == tensor.F32 {
		for i, q := range codes {
			g := m.group[i]
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(int(q)-int(zeros[g]))*scales[g]))
		}
		return
	}
	n, size := d.BlockElements(), d.BlockBytes()
	for i := 0; i < m.in; i += n {
		g := m.group[i]
		quant.PutZ(dst[i/n*size:][:size], tensor.Float32ToF16(scales[g]), zeros[g], codes[i:i+n])
	}
}

// packedRows reads the rows of a weight in one type.
type packedRows struct {
	*packedMatrix
	dtype tensor.DType
}

// ReadAt implements io.ReaderAt, some rows at a time.
func (r *packedRows) ReadAt(p []byte, off int64) (n int, err error) {
	width := r.dtype.Bytes(r.in)
	row := make([]byte, width)
	var t packedTile
	for at, skip := int(off/int64(width)), int(off%int64(width)); n < len(p); {
		if at >= r.out {
			return n, io.EOF
		}
		many := min(tileRows, r.out-at, (len(p)-n+skip+width-1)/width)
		if err := r.read(&t, at, many); err != nil {
			return n, err
		}
		for j := range many {
			r.encode(row, &t, j, r.dtype)
			n, skip = n+copy(p[n:], row[skip:]), 0
		}
		at += many
	}
	return n, nil
}
