package program

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Random is a device that generates random weights instead of reading files, which may be empty. A large model thus
// needs no disk space and no copies. Zeros would flatter a GPU, whose clock drops as more bits toggle.
type Random struct {
	backend.Device
	backend.Memory

	drawn int64 // bytes
	keys  uint32
}

// Draw makes a device draw its weights; it must be a [backend.Memory].
func Draw(dev backend.Device) (*Random, error) {
	memory, ok := dev.(backend.Memory)
	if !ok {
		return nil, fmt.Errorf("%w: the device does not divide its memory", backend.ErrUnsupported)
	}
	return &Random{Device: dev, Memory: memory}, nil
}

// deviation is the standard deviation of the uniform weights, typical of initialization.
const deviation = 0.02

// Load implements backend.Loader. Vectors are ones, unless they are biases.
func (r *Random) Load(ctx context.Context, weights []backend.Weight) ([]backend.Buffer, error) {
	sizes := make([]int, len(weights))
	for i, w := range weights {
		if !w.DType.IsFloat() {
			return nil, fmt.Errorf("tensor %q: %w: drawing %v", w.View.Name, backend.ErrUnsupported, w.DType)
		}
		sizes[i] = w.DType.Bytes(elements(w))
	}
	buffers, err := r.AllocAll(sizes)
	if err != nil {
		return nil, err
	}
	programs := map[shape]*drawing{}
	for i, w := range weights {
		if err = r.draw(ctx, programs, w, buffers[i]); err != nil {
			err = fmt.Errorf("tensor %q: %w", w.View.Name, err)
			break
		}
		r.drawn += int64(sizes[i])
	}
	for _, p := range programs {
		err = errors.Join(err, p.Close())
	}
	if err != nil {
		for _, b := range buffers {
			b.Free()
		}
		return nil, err
	}
	return buffers, nil
}

// Loaded implements backend.Loader.
func (r *Random) Loaded() backend.LoadStats {
	return backend.LoadStats{Bytes: r.drawn, Why: "weights are drawn on the device"}
}

func elements(w backend.Weight) int {
	n := 1
	for _, d := range w.View.Shape {
		n *= d
	}
	return n
}

// shape identifies tensors that the same program generates.
type shape struct {
	n     int
	dtype tensor.DType
}

func (r *Random) draw(ctx context.Context, programs map[shape]*drawing, w backend.Weight, to backend.Buffer) error {
	s := shape{elements(w), w.DType}
	if len(w.View.Shape) == 1 && !strings.HasSuffix(w.View.Name, ".bias") {
		ones, data := make([]float32, s.n), make([]byte, s.dtype.Bytes(s.n))
		for i := range ones {
			ones[i] = 1
		}
		if err := tensor.FromFloat32(data, ones, s.dtype); err != nil {
			return err
		}
		return upload(ctx, r, to, 0, data)
	}
	p := programs[s]
	if p == nil {
		var err error
		if p, err = newDrawing(r.Device, s); err != nil {
			return err
		}
		programs[s] = p
	}
	r.keys++
	return p.into(ctx, r, to, r.keys)
}

// drawing is the program that fills a buffer.
type drawing struct {
	*exec.Executable
	key backend.Buffer
}

func newDrawing(dev backend.Device, s shape) (*drawing, error) {
	g := graph.New().IR()
	words := g.Cast(g.Philox(g.Param("key", ir.RandomKey), 0, ir.ShapeOf(s.n)), tensor.F32)
	const half = 1 << 31
	x := g.Scale(g.AddScalar(words, -half), deviation*1.7320508/half) // the deviation of a uniform number is its bound by √3
	e, err := exec.Compile(g, exec.Spec{Results: []exec.Result{{Name: "weight", Value: g.Cast(x, s.dtype)}}}, dev)
	if err != nil {
		return nil, err
	}
	key, err := dev.Alloc(12)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return &drawing{e, key}, e.Bind("key", key)
}

// into fills a buffer by the numbers of a key.
func (d *drawing) into(ctx context.Context, dev backend.Device, to backend.Buffer, key uint32) error {
	if err := d.Bind("weight", to); err != nil {
		return err
	}
	if err := upload(ctx, dev, d.key, 0, tensor.BytesOf([]uint32{key, 0, 0})); err != nil {
		return err
	}
	return d.RunWait(ctx)
}

// Close frees the memory.
func (d *drawing) Close() error {
	d.key.Free()
	return d.Executable.Close()
}
