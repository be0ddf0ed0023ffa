//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/tensor"
)

// For tests, these force how shaders are compiled: "plain" or "simd", and "0" or "1".
const (
	EnvTier   = "LORAFUSE_METAL_TIER"
	EnvBFloat = "LORAFUSE_METAL_BFLOAT"
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
	for _, v := range []struct {
		env, off, on string
		has          *bool
	}{{EnvTier, "plain", "simd", &f.simd}, {EnvBFloat, "0", "1", &f.bfloat}} {
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
	w, _, err := s.run(list, nil)
	if err == nil {
		_, err = w.wait()
	}
	copy(tensor.BytesOf(numbers), contents)
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
