package inspect

import (
	"context"
	"encoding/json"
	"hash/crc32"
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/internal/chunks"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Options say how tensors are read. The zero value does what is usual.
type Options struct {
	// Checksums asks for Values.CRC32C.
	Checksums bool
	// Threads is how many tensors, or chunks of one, are read at once; 0 is one
	// per core that the program may use.
	Threads int
	// Progress, where it is set, is told how many of all bytes have been read.
	Progress func(done, total int64)
}

const (
	// chunkSize is what one worker reads at a time of a tensor: whole elements
	// of every type, also of those of less than a byte.
	chunkSize = 6 << 20
	// blockSize is the part of a chunk that is looked at while it is in the
	// cache.
	blockSize = 192 << 10
)

// Scan reads every byte of the tensors once and says what they hold, in the
// order of views. A tensor that cannot be read has Values.Err; the others are
// read all the same. It fails with the error of ctx alone.
//
// Memory is a few hundred kilobytes per thread. The numbers are the same for
// any number of threads.
func Scan(ctx context.Context, views []*safetensors.View, o Options) ([]Values, error) {
	s := &scan{options: o, tensors: make([]scanned, len(views)), values: make([]Values, len(views))}
	lengths := make([]int64, len(views))
	for i, v := range views {
		t := &s.tensors[i]
		lengths[i] = int64(v.Len())
		t.view, t.left = v, chunks.Count(lengths[i], chunkSize)
		if t.left == 0 {
			s.values[i] = t.finish()
		}
	}
	cut := chunks.Options{Size: chunkSize, Threads: o.Threads, Progress: o.Progress}
	err := chunks.Each(ctx, lengths, cut, func() func(chunks.Chunk) error {
		w := &worker{counters: map[safetensors.DType]*counter{}}
		return func(p chunks.Chunk) error {
			s.read(ctx, w, p)
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	return s.values, nil
}

// scan is a Scan under way.
type scan struct {
	options Options
	tensors []scanned
	values  []Values
}

// scanned is what is known of a tensor so far.
type scanned struct {
	view *safetensors.View

	mu     sync.Mutex
	parts  []part // by number of the chunk, made when the first is read
	left   int64  // chunks
	err    error
	failed atomic.Bool // err is set
}

// worker is the memory of one thread.
type worker struct {
	counters map[safetensors.DType]*counter
	sweep    sweep
	block    []byte // for tensors that are not in place
}

// read looks at one chunk.
func (s *scan) read(ctx context.Context, w *worker, at chunks.Chunk) {
	t := &s.tensors[at.Run]
	var p part
	var err error
	if !t.failed.Load() {
		err = w.look(ctx, t.view, at.From, at.Length, s.options.Checksums, &p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.err == nil {
		t.err = err
		t.failed.Store(true)
	}
	if t.parts == nil {
		t.parts = make([]part, chunks.Count(int64(t.view.Len()), chunkSize))
	}
	t.parts[at.Number] = p
	if t.left--; t.left == 0 {
		s.values[at.Run] = t.finish()
		t.parts = nil
	}
}

// look reads length bytes of a tensor, block by block.
func (w *worker) look(ctx context.Context, v *safetensors.View, from, length int64, checksums bool, p *part) error {
	c, ok := w.counters[v.DType]
	if !ok {
		c = newCounter(v.DType)
		w.counters[v.DType] = c
	}
	// What is not in place is read in one call: that may be one to another
	// machine.
	span := int64(blockSize)
	if !v.InPlace() {
		span = chunkSize
	}
	for done := int64(0); done < length; done += span {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := lend(v, from+done, min(span, length-done), &w.block, func(data []byte) error {
			for len(data) > 0 {
				block := data[:min(len(data), blockSize)]
				if c != nil {
					c.count(block)
				} else {
					w.sweep.add(p, block, v.DType)
				}
				if checksums {
					p.crc = crc32.Update(p.crc, castagnoli, block)
				}
				data = data[len(block):]
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if c != nil {
		c.sum(p)
	}
	p.bytes = length
	return nil
}

// lend calls fn with some bytes of a tensor: in place, or read into *room.
func lend(v *safetensors.View, from, length int64, room *[]byte, fn func([]byte) error) error {
	if v.InPlace() {
		return v.Use(func(data []byte) error { return fn(data[from : from+length]) })
	}
	if int64(cap(*room)) < length {
		*room = make([]byte, length)
	}
	data := (*room)[:length]
	if n, err := v.ReadAt(data, from); n < len(data) {
		return err
	}
	return fn(data)
}

// finish joins the parts in their order.
func (t *scanned) finish() Values {
	if t.err != nil {
		return Values{Err: t.err}
	}
	var all part
	for i := range t.parts {
		all.add(&t.parts[i])
	}
	v := Values{
		Elements: elements(t.view.Shape), NaN: all.nan, Inf: all.inf, Zero: all.zero, NotBool: all.bools,
		Mean: math.NaN(), Std: math.NaN(), CRC32C: all.crc,
	}
	if all.moments.n == 0 {
		return v
	}
	v.Mean, v.Std = all.moments.mean, all.moments.std()
	switch d := t.view.DType; d {
	case safetensors.I64, safetensors.U64:
		v.Min, v.Max = keyNumber(all.wholes.lo.key, d), keyNumber(all.wholes.hi.key, d)
		v.Histogram = all.wholes.histogram(func(place uint64, exp int) json.Number { return keyEdge(place, exp, d) }, v.Min)
	default:
		v.Min, v.Max = floatNumber(all.floats.lo.f), floatNumber(all.floats.hi.f)
		v.Histogram = all.floats.histogram(func(place int64, exp int) json.Number {
			edge := math.Ldexp(float64(place), exp)
			return floatNumber(max(-math.MaxFloat64, min(edge, math.MaxFloat64)))
		}, v.Min)
	}
	return v
}

func elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}

// floatNumber writes x with the digits that tell it from all other float64.
func floatNumber(x float64) json.Number {
	if whole := int64(x); float64(whole) == x && math.Abs(x) < 1<<53 {
		return json.Number(strconv.FormatInt(whole, 10))
	}
	return json.Number(strconv.FormatFloat(x, 'g', -1, 64))
}

func keyNumber(key uint64, d safetensors.DType) json.Number {
	if d == safetensors.I64 {
		return json.Number(strconv.FormatInt(int64(key^1<<63), 10))
	}
	return json.Number(strconv.FormatUint(key, 10))
}

// keyEdge is the first number of a place, which may be the one after the
// largest key.
func keyEdge(place uint64, exp int, d safetensors.DType) json.Number {
	if key := place << exp; key>>exp == place {
		return keyNumber(key, d)
	}
	if d == safetensors.I64 {
		return "9223372036854775808"
	}
	return "18446744073709551616"
}
