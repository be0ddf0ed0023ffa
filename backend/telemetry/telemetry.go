// Package telemetry reads what a run does to its machine: the memory and time
// of the process on every build, and of NVIDIA GPUs their memory, use, power,
// energy, temperature, clocks and links, by NVML, in builds with the tag cuda.
//
// Nothing here fails for want of a driver: what cannot be read is left out, and
// [Meter.Missing] says why.
package telemetry

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// ErrUnavailable is the error of GPUs that cannot be watched: this build has no
// NVML, or the host has no driver.
var ErrUnavailable = errors.New("no GPU telemetry")

// Sample holds the values read at one moment.
type Sample struct {
	Time    time.Time `json:"time"`
	Process Process   `json:"process"`
	GPUs    []GPU     `json:"gpus"`
}

// Process is this process.
type Process struct {
	ResidentBytes int64   `json:"resident_bytes,omitempty"` // 0 where the system does not tell
	PeakBytes     int64   `json:"peak_bytes,omitempty"`
	CPUSeconds    float64 `json:"cpu_seconds"` // of all threads, since the start
	Goroutines    int     `json:"goroutines"`
}

// GPU is one device, or an instance of one that MIG divides. A field that the
// device or its driver does not have is nil.
type GPU struct {
	Index  int    `json:"index"` // as NVML counts, whatever CUDA_VISIBLE_DEVICES says
	UUID   string `json:"uuid"`  // with GPU- or MIG- before it
	Name   string `json:"name"`
	Driver string `json:"driver,omitempty"`
	MIG    string `json:"mig,omitempty"` // "enabled" for a device that is divided, the UUID of its GPU for an instance

	MemoryUsed  *int64 `json:"memory_used_bytes,omitempty"`
	MemoryTotal *int64 `json:"memory_total_bytes,omitempty"`

	Utilization       *float64 `json:"utilization,omitempty"`        // share of the last moments with a kernel running, 0 to 1
	MemoryUtilization *float64 `json:"memory_utilization,omitempty"` // share in which memory was read or written

	PowerWatts      *float64 `json:"power_watts,omitempty"`
	PowerLimitWatts *float64 `json:"power_limit_watts,omitempty"`
	EnergyJoules    *float64 `json:"energy_joules,omitempty"` // since the driver was loaded

	TemperatureC   *float64 `json:"temperature_celsius,omitempty"`
	SMClockMHz     *float64 `json:"sm_clock_mhz,omitempty"`
	SMClockMaxMHz  *float64 `json:"sm_clock_max_mhz,omitempty"`
	MemoryClockMHz *float64 `json:"memory_clock_mhz,omitempty"`
	// Throttled are the reasons for which clocks are held down now.
	Throttled []string `json:"throttled,omitempty"`

	PCIeGeneration *int     `json:"pcie_generation,omitempty"`
	PCIeWidth      *int     `json:"pcie_width,omitempty"`
	PCIeTx         *float64 `json:"pcie_tx_bytes_per_second,omitempty"`
	PCIeRx         *float64 `json:"pcie_rx_bytes_per_second,omitempty"`
	NVLinks        *int     `json:"nvlinks_active,omitempty"`

	Processes []GPUProcess `json:"processes,omitempty"`
}

// GPUProcess is a process that computes on a device.
type GPUProcess struct {
	PID         int   `json:"pid"`
	MemoryBytes int64 `json:"memory_bytes,omitempty"` // 0 where the driver does not tell
}

// gpus reads GPUs.
type gpus interface {
	read() []GPU
	close() error
}

// Meter reads samples. Its methods may be called from several goroutines.
type Meter struct {
	gpus    gpus
	missing error
}

// Open returns a meter of this process and of all GPUs.
func Open() *Meter {
	g, err := openGPUs()
	return &Meter{gpus: g, missing: err}
}

// Missing returns the reason why samples have no GPUs: an ErrUnavailable, or nil.
func (m *Meter) Missing() error { return m.missing }

// Read returns the current values.
func (m *Meter) Read() Sample {
	s := Sample{Time: time.Now(), Process: process(), GPUs: []GPU{}}
	if m.gpus != nil {
		s.GPUs = append(s.GPUs, m.gpus.read()...)
	}
	return s
}

// Close ends the use of the driver's library.
func (m *Meter) Close() error {
	if m.gpus == nil {
		return nil
	}
	return m.gpus.close()
}

// Is reports whether uuid identifies the GPU or instance. It accepts NVML's form and CUDA's, which omits GPU- or
// MIG-.
func (g *GPU) Is(uuid string) bool {
	bare := func(s string) string { return strings.TrimPrefix(strings.TrimPrefix(s, "GPU-"), "MIG-") }
	return uuid != "" && strings.EqualFold(bare(g.UUID), bare(uuid))
}

// Of returns the GPU or instance with the given UUID, or nil.
func (s *Sample) Of(uuid string) *GPU {
	for i := range s.GPUs {
		if s.GPUs[i].Is(uuid) {
			return &s.GPUs[i]
		}
	}
	return nil
}

// Energy returns the energy in joules that GPUs used between two samples, for the given UUIDs or, without any, for
// all GPUs. ok is false if no GPU reports energy; MIG instances do not, since only the whole GPU is measured.
func Energy(from, to Sample, uuids ...string) (joules float64, ok bool) {
	for _, b := range to.GPUs {
		if b.EnergyJoules == nil || len(uuids) > 0 && !slices.ContainsFunc(uuids, b.Is) {
			continue
		}
		for _, a := range from.GPUs {
			if a.UUID == b.UUID && a.EnergyJoules != nil {
				joules, ok = joules+*b.EnergyJoules-*a.EnergyJoules, true
			}
		}
	}
	return joules, ok
}
