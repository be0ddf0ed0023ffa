//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"strings"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/shim"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// rank orders GPUs before the CPU.
const rank = 10

// oldest is the compute capability that kernels are compiled for at least.
const oldest = 80

func init() {
	backend.Register(backend.CUDA, backend.Driver{
		Rank:      rank,
		Precision: backend.BF16,
		Devices:   Devices,
		Open:      func(o backend.Options) (backend.Device, error) { return Open(o) },
	})
}

// load opens the driver. Errors: backend.ErrUnavailable, with the reason.
func load() error {
	if err := shim.Load(); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return nil
}

// Devices lists the GPUs that the kernels support. Errors: backend.ErrUnavailable, with the paths that were tried for
// the driver or the GPUs that are too old.
func Devices() ([]backend.Info, error) {
	if err := load(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err = driver.Of(err); err != nil && !errors.Is(err, driver.NoDevice) {
		return nil, fmt.Errorf("%w: counting devices: %w", backend.ErrUnavailable, err)
	}
	var infos []backend.Info
	var refused []string
	for i := range n {
		p, err := describe(i)
		if err == nil {
			err = p.supported()
		}
		if err != nil {
			refused = append(refused, err.Error())
			continue
		}
		infos = append(infos, p.info())
	}
	if len(infos) == 0 && len(refused) == 0 {
		return nil, fmt.Errorf("%w: the driver finds no device", backend.ErrUnavailable)
	}
	if len(infos) == 0 {
		return nil, fmt.Errorf("%w: %s", backend.ErrUnavailable, strings.Join(refused, "; "))
	}
	return infos, nil
}

// properties holds the properties of a GPU that are known before it is opened.
type properties struct {
	index      int
	name       string
	memory     int64
	capability int // 10·major + minor
	processors int
	clock      float64 // the largest, in Hz
	bandwidth  float64 // of the memory, in bytes a second
	uuid       string  // empty if an old driver does not report it
	driver     int     // 1000·major + 10·minor
}

// describe queries the driver for the properties of device i.
func describe(i int) (p properties, err error) {
	dev, err := cu.GetDevice(i)
	if err != nil {
		return p, fmt.Errorf("device %d: %w", i, driver.Of(err))
	}
	p.index, p.driver = i, cu.Version()
	if p.name, err = dev.Name(); err == nil {
		p.memory, err = dev.TotalMem()
	}
	var major, minor, clock, memoryClock, bus int
	for _, a := range []struct {
		to *int
		of cu.DeviceAttribute
	}{{&major, cu.ComputeCapabilityMajor}, {&minor, cu.ComputeCapabilityMinor}, {&p.processors, cu.MultiprocessorCount},
		{&clock, cu.ClockRate}, {&memoryClock, cu.MemoryClockRate}, {&bus, cu.GlobalMemoryBusWidth}} {
		if err == nil {
			*a.to, err = dev.Attribute(a.of)
		}
	}
	p.capability, p.clock = 10*major+minor, 1e3*float64(clock)
	p.bandwidth = 2 * 1e3 * float64(memoryClock) * float64(bus) / 8 // twice in a clock, in bits
	p.uuid, _ = driver.UUID(dev)
	if err != nil {
		return p, fmt.Errorf("device %d: %w", i, driver.Of(err))
	}
	return p, nil
}

func (p *properties) supported() error {
	if p.capability < oldest {
		return fmt.Errorf("device %d %s has compute capability %s, expected %s or newer", p.index, p.name, version(p.capability), version(oldest))
	}
	return nil
}

// version writes 90 as 9.0.
func version(capability int) string { return fmt.Sprintf("%d.%d", capability/10, capability%10) }

func (p *properties) info() backend.Info {
	return backend.Info{Backend: backend.CUDA, Index: p.index, Name: p.name, UUID: p.uuid, Memory: p.memory, GPU: true, Quantizes: gpu.Quantizes, Detail: fmt.Sprintf(
		"compute capability %s, %d multiprocessors, driver %d.%d", version(p.capability), p.processors, p.driver/1000, p.driver%1000/10)}
}
