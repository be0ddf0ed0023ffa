//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/kernels"
)

// Inspection describes how a device computes. scripts/mac_check.sh prints it.
type Inspection struct {
	Device string
	// Contracted is the largest |a·b − fl(a·b)| of some products, which is 0 unless the compiler makes one fma of a
	// product and a sum. Fused reports whether fma rounds once.
	Contracted float64
	Fused      bool
	Rates      []Rate
	Memory     int // bytes of threadgroup memory, at most
	Pipelines  []Pipeline
}

// Rate is a measured rate.
type Rate struct {
	Name      string
	PerSecond float64 // floating-point operations, or bytes
}

// Pipeline describes a compiled kernel.
type Pipeline struct {
	File, Kernel string
	Needed       int // threads of a threadgroup that launches have, at most; 0 if the source does not tell
	Threads      int // that the device allows
	Width        int // threads of a simdgroup
	Memory       int // bytes of threadgroup memory that it declares
}

// Inspect measures rates of the device and compiles all kernels. Kernels that do not exist in the device's form of
// shaders are left out.
func (d *Device) Inspect() (i Inspection, err error) {
	i.Device, i.Memory = d.Info().Name+", "+d.Info().Detail, d.traits.memory
	if i.Contracted, i.Fused, err = contraction(d.system, d.shaders.form); err != nil {
		return i, err
	}
	if i.Pipelines, err = d.pipelines(); err != nil {
		return i, err
	}
	err = d.Do(func() error {
		out, err := d.Obtain(4*peakThreads*peakGroups, gpu.UseArena, "the results of a measurement")
		if err != nil {
			return err
		}
		defer d.Release(out)
		for _, p := range []products{peakFMA, peakF32, peakF16, peakBF16} {
			rate, err := d.flops(p, out)
			if err != nil {
				return err
			}
			i.Rates = append(i.Rates, Rate{p.kernel, rate})
		}
		p, err := d.peak()
		i.Rates = append(i.Rates, Rate{"peak_read", p.BytesPerSecond})
		return err
	})
	return i, err
}

// contraction computes a·b − fl(a·b) on the device, without and with fma.
func contraction(s *system, f form) (most float64, fused bool, err error) {
	x := make([]float32, 3*probeThreads)
	a, b, p := x[:probeThreads], x[probeThreads:2*probeThreads], x[2*probeThreads:]
	exact := make([]float32, probeThreads)
	for i := range a {
		a[i], b[i] = 1+float32(2*i+1)/8192, 1+float32(2*i+3)/16384
		p[i] = a[i] * b[i]
		exact[i] = float32(float64(a[i])*float64(b[i]) - float64(p[i])) // both are exact
	}
	if err := ask(s, f, "contraction", x); err != nil {
		return 0, false, err
	}
	for _, v := range a {
		most = max(most, math.Abs(float64(v)))
	}
	return most, slices.Equal(b, exact), nil
}

// pipelines compiles all kernels, ordered by file and name.
func (d *Device) pipelines() (list []Pipeline, err error) {
	all, err := kernels.MetalSignatures(kernels.Metal())
	if err != nil {
		return nil, err
	}
	sorted := slices.SortedFunc(maps.Values(all), func(a, b kernels.Signature) int {
		return cmp.Or(strings.Compare(a.File, b.File), strings.Compare(a.Name, b.Name))
	})
	for _, s := range sorted {
		k, err := d.shaders.find(s.File, s.Name)
		switch {
		case errors.Is(err, errNoKernel):
		case err != nil:
			return nil, fmt.Errorf("metal: %w", err)
		default:
			list = append(list, Pipeline{s.File, s.Name, s.Threads, k.threads, k.width, k.memory})
		}
	}
	return list, nil
}

// String returns the inspection as text with a table in Markdown.
func (i Inspection) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", i.Device)
	fmt.Fprintf(&b, "a·b − fl(a·b) without fma: at most %g (0 expected); fma rounds once: %t\n", i.Contracted, i.Fused)
	for _, r := range i.Rates {
		unit := "TFLOP/s"
		if r.Name == "peak_read" {
			unit = "TB/s"
		}
		fmt.Fprintf(&b, "%s: %.3g %s\n", r.Name, r.PerSecond/1e12, unit)
	}
	fmt.Fprintf(&b, "\n| file | kernel | threads needed | threads allowed | simdgroup | threadgroup memory, of %s |\n|---|---|--:|--:|--:|--:|\n", bytesize.Binary(int64(i.Memory)))
	for _, p := range i.Pipelines {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d |\n", p.File, p.Kernel, p.Needed, p.Threads, p.Width, p.Memory)
	}
	return b.String()
}
