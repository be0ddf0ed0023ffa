package inspect

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// counter counts the occurrences of each bit pattern, which determine all
// statistics of elements of 16 bits or less, at one addition per element.
type counter struct {
	dtype  safetensors.DType
	values []float32 // by pattern
	counts []uint32
}

// newCounter returns a counter, nil for types that are not counted.
func newCounter(d safetensors.DType) *counter {
	if d.Bits() == 0 || d.Bits() > 16 {
		return nil
	}
	values := valuesOf(d)
	if values == nil {
		return nil
	}
	return &counter{dtype: d, values: values, counts: make([]uint32, len(values))}
}

// tables caches valuesOf: 256 KiB for each 16-bit type.
var tables sync.Map

// valuesOf returns the values of all bit patterns of a type, nil if they are
// unknown.
func valuesOf(d safetensors.DType) []float32 {
	if known, ok := tables.Load(d); ok {
		values, _ := known.([]float32)
		return values
	}
	t, err := tensor.ParseDType(d.String())
	if err != nil {
		return nil
	}
	values := make([]float32, 1<<d.Bits())
	var patterns []byte
	for i := range values {
		patterns = binary.LittleEndian.AppendUint16(patterns, uint16(i))[:(i+1)*t.Size()]
	}
	if err := tensor.ToFloat32(values, patterns, t); err != nil {
		return nil
	}
	tables.Store(d, values)
	return values
}

// count counts whole elements, less than 2^32 of them before the next sum.
func (c *counter) count(data []byte) {
	if c.dtype.Bits() == 16 {
		c.countPairs(data)
	} else {
		c.countBytes(data)
	}
}

// countBytes alternates between two tables: runs of equal bytes, which are
// frequent, would otherwise wait for the previous increment.
func (c *counter) countBytes(data []byte) {
	var even, odd [256]uint32
	for ; len(data) >= 2; data = data[2:] {
		even[data[0]]++
		odd[data[1]]++
	}
	for _, x := range data {
		even[x]++
	}
	for i := range even {
		c.counts[i] += even[i] + odd[i]
	}
}

func (c *counter) countPairs(data []byte) {
	table := (*[1 << 16]uint32)(c.counts)
	for ; len(data) >= 8; data = data[8:] {
		x := binary.LittleEndian.Uint64(data)
		table[uint16(x)]++
		table[uint16(x>>16)]++
		table[uint16(x>>32)]++
		table[uint16(x>>48)]++
	}
	for ; len(data) >= 2; data = data[2:] {
		table[binary.LittleEndian.Uint16(data)]++
	}
}

// sum adds the counts to p and resets them.
func (c *counter) sum(p *part) {
	var o part
	lo, hi, sum := math.Inf(1), math.Inf(-1), 0.0
	for i, n := range c.counts[:len(c.values)] {
		if n == 0 {
			continue
		}
		x, n := float64(c.values[i]), int64(n)
		switch {
		case x != x:
			o.nan += n
			continue
		case math.IsInf(x, 0):
			o.inf += n
			continue
		case x == 0:
			o.zero += n
		}
		o.moments.n += n
		sum += x * float64(n)
		lo, hi = min(lo, x), max(hi, x)
	}
	if c.dtype == safetensors.Bool {
		for _, n := range c.counts[2:] {
			o.bools += int64(n)
		}
	}
	if o.moments.n > 0 {
		c.spread(&o, lo, hi, sum/float64(o.moments.n))
	}
	clear(c.counts)
	p.add(&o)
}

func (c *counter) spread(o *part, lo, hi, mean float64) {
	o.moments.mean = mean
	o.floats = gridOf(lo, hi, finest(c.dtype))
	o.floats.n = o.moments.n
	scale := o.floats.scale()
	for i, n := range c.counts[:len(c.values)] {
		x := float64(c.values[i])
		if n == 0 || x-x != 0 {
			continue
		}
		o.moments.m2 += (x - mean) * (x - mean) * float64(n)
		o.floats.counts[gridPlace(x, scale)-o.floats.base] += int64(n)
	}
}
