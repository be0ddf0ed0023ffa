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

// Options configure how tensors are read. The zero value selects the defaults.
type Options struct {
	// Checksums requests Values.CRC32C.
	Checksums bool
	// Threads is the number of tensors, or chunks of one, that are read
	// concurrently. Zero means one per core available to the program.
	Threads int
	// Progress, if not nil, is called with the number of bytes read and the
	// total.
	Progress func(done, total int64)
}

const (
	// chunkSize is the number of bytes of a tensor that a worker reads at a
	// time. It is an integral number of elements for every type, even for types
	// smaller than a byte.
	chunkSize = 6 << 20
	// blockSize is the part of a chunk that is processed while it is in the
	// cache.
	blockSize = 192 << 10
)

// Scan reads every byte of the tensors once and returns statistics of their
// values, in the order of views. If a tensor cannot be read, its Values.Err is
// set and the others are still read. Scan fails only with the error of ctx.
//
// It uses a few hundred kilobytes of memory per thread. The numbers are the
// same for any number of threads.
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

// scan is the state of a Scan.
type scan struct {
	options Options
	tensors []scanned
	values  []Values
}

// scanned is the state of a tensor in a Scan.
type scanned struct {
	view *safetensors.View

	mu     sync.Mutex
	parts  []part // by chunk, allocated when the first chunk is read
	left   int64  // chunks
	err    error
	failed atomic.Bool // err is set
}

// worker is the scratch memory of one goroutine.
type worker struct {
	counters map[safetensors.DType]*counter
	sweep    sweep
	block    []byte // for tensors that are not in place
}

// read processes one chunk.
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

// look processes length bytes of a tensor, block by block.
func (w *worker) look(ctx context.Context, v *safetensors.View, from, length int64, checksums bool, p *part) error {
	c, ok := w.counters[v.DType]
	if !ok {
		c = newCounter(v.DType)
		w.counters[v.DType] = c
	}
	// Tensors that are not in place are read in one call, which may go to
	// another machine.
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

// lend calls fn with some bytes of a tensor, in place or read into *room.
func lend(v *safetensors.View, from, length int64, room *[]byte, fn func([]byte) error) error {
	if v.InPlace() {
		return v.WithBytes(func(data []byte) error { return fn(data[from : from+length]) })
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

// finish merges the parts in order.
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

// floatNumber formats x with enough digits to distinguish it from all other
// float64 numbers.
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

// keyEdge returns the first number of a place, which may be one past the
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
