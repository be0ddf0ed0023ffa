//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/tensor"
)

// For tests, these force the form of shaders: "plain" or "simd", and "0" or "1".
const (
	EnvTier   = "LORAFUSE_METAL_TIER"
	EnvBFloat = "LORAFUSE_METAL_BFLOAT"
	EnvTables = "LORAFUSE_METAL_TABLES"
)

//go:embed probe.metal
var probeText string

// probe selects the form of shaders for a device: the one that its families promise, if a small kernel confirms it. It
// fails if the environment requests a form that the device does not support.
func probe(s *system, t traits) (f form, err error) {
	f.simd = t.apple >= 7 || t.metal >= 3
	f.bfloat = (t.apple >= 6 || t.metal >= 3) && t.language >= 310
	f.simd = f.simd && proven(s, form{simd: true}) == nil
	f.bfloat = f.bfloat && proven(s, form{bfloat: true}) == nil
	f.tables = t.metal >= 3 && provenTables(s) == nil
	for _, v := range []struct {
		env, off, on string
		has          *bool
	}{{EnvTier, "plain", "simd", &f.simd}, {EnvBFloat, "0", "1", &f.bfloat}, {EnvTables, "0", "1", &f.tables}} {
		switch value := os.Getenv(v.env); value {
		case "":
		case v.off:
			*v.has = false
		case v.on:
			if !*v.has {
				return f, fmt.Errorf("%s=%s: %s cannot: it has %s", v.env, value, t.name, f)
			}
		default:
			return f, fmt.Errorf("%s: found %q, expected %s or %s", v.env, value, v.off, v.on)
		}
	}
	return f, nil
}

// probeThreads is the number of threads of the kernels of probe.metal.
const probeThreads = 32

// ask runs a kernel of probe.metal, compiled in a form, on numbers that it overwrites.
func ask(s *system, f form, kernel string, numbers []float32) error {
	l, err := s.compile(probeText, f)
	if err != nil {
		return err
	}
	defer l.free()
	p, err := s.pipeline(l, kernel)
	if err != nil {
		return err
	}
	defer p.free()
	p.layout([]gpu.Kind{gpu.PointerKind})
	at, contents := s.alloc(4 * len(numbers))
	if at == 0 {
		return errMemory
	}
	defer s.free(at)
	copy(contents, tensor.BytesOf(numbers))
	list := make([]gpu.Launch, 1)
	list[0] = gpu.Launch{Function: p.handle(), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{probeThreads, 1, 1}, Count: 1}
	list[0].Args[0] = uint64(at)
	err = s.finish(list, nil)
	copy(tensor.BytesOf(numbers), contents)
	return err
}

// finish runs launches as one command and waits for it.
func (s *system) finish(l []gpu.Launch, accesses []gpu.Access) error {
	w, _, err := s.run(l, accesses, nil)
	if err == nil {
		_, err = w.wait()
	}
	return err
}

// proven runs the probe on the device in a form.
func proven(s *system, f form) error {
	const threads = probeThreads
	out := make([]float32, threads)
	if err := ask(s, f, "probe", out); err != nil {
		return err
	}
	for i, got := range out {
		x := float32(i + 1)
		want := x
		if f.simd {
			want = threads*(threads+1)/2 + float32(i^1+1)/64 + 8
		}
		if f.bfloat {
			want += 0.5
		}
		if got != want {
			return fmt.Errorf("the probe gives %v for thread %d, expected %v", got, i, want)
		}
	}
	return nil
}

// provenTables checks that a kernel that reads the address of a buffer from a table works on the buffer between kernels
// that have it bound.
func provenTables(s *system) error {
	l, err := s.compile(probeText, form{})
	if err != nil {
		return err
	}
	defer l.free()
	x, numbers := s.alloc(4 * probeThreads)
	table, words := s.alloc(16)
	for _, at := range []gpu.Pointer{x, table} {
		if at == 0 {
			return errMemory
		}
		defer s.free(at)
	}
	binary.NativeEndian.PutUint64(words, s.address(x))
	list := make([]gpu.Launch, 3)
	for i, at := range []gpu.Pointer{x, table, x} {
		p, err := s.pipeline(l, []string{"bound", "addressed"}[i%2])
		if err != nil {
			return err
		}
		defer p.free()
		p.layout([]gpu.Kind{gpu.PointerKind})
		list[i] = gpu.Launch{Function: p.handle(), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{probeThreads, 1, 1}, Count: 1, Accesses: [2]uint32{0, uint32(i % 2)}}
		list[i].Args[0] = uint64(at)
	}
	if err := s.finish(list, []gpu.Access{{At: x, Written: 1}}); err != nil {
		return err
	}
	for i := range probeThreads {
		if got, want := math.Float32frombits(binary.NativeEndian.Uint32(numbers[4*i:])), float32(3*(i+1)); got != want {
			return fmt.Errorf("the probe of tables gives %v for thread %d, expected %v", got, i, want)
		}
	}
	return nil
}
