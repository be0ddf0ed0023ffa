package program

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
)

// Machine holds a device for each precision and its peak rates.
type Machine struct {
	Info    backend.Info
	Threads int
	// Quick takes shorter samples and measures the peaks only once, at the end. It is for quick checks, not for
	// figures.
	Quick bool
	// Once has a sample be one run.
	Once    bool
	devices [2]backend.Device
	peaks   [2]bench.Peak
	held    [2][]*bench.Row // against the peaks
}

// Open opens the devices.
func Open(name string, threads int) (*Machine, error) {
	if threads < 0 {
		return nil, fmt.Errorf("%w: found %d threads, expected 1 or more, or 0 for one per core", bench.ErrOptions, threads)
	}
	m := &Machine{Threads: threads}
	if threads == 0 {
		m.Threads = runtime.GOMAXPROCS(0)
	}
	for _, p := range []backend.Precision{backend.F32, backend.BF16} {
		dev, err := backend.Open(name, backend.Options{Threads: threads, Precision: p})
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.devices[p], m.Info = dev, dev.Info()
	}
	return m, nil
}

// Measure samples the tasks and measures the machine's peaks in between. The highest peak counts, since other load can
// only lower it.
func (m *Machine) Measure(ctx context.Context, t bench.Turns, tasks []bench.Task, report *bench.Report) error {
	m.use(t.Peaks)
	if !m.Quick && t.Peaks == nil {
		t.Between = m.measurePeaks
	}
	if save := t.Save; save != nil {
		t.Save = func(r *bench.Report) error {
			m.hold()
			return save(r)
		}
	}
	err := t.Measure(ctx, tasks, report)
	if err == nil && t.Peaks == nil {
		err = m.measurePeaks()
	}
	m.hold()
	return err
}

// use sets peaks that were measured earlier.
func (m *Machine) use(peaks map[string]bench.Peak) {
	for p := range m.peaks {
		if peak, ok := peaks[backend.Precision(p).String()]; ok {
			m.peaks[p] = peak
		}
	}
}

// hold assigns the peaks measured so far to the rows.
func (m *Machine) hold() {
	for p, rows := range m.held {
		for _, row := range rows {
			row.Peak = m.peaks[p]
		}
	}
}

// MinDuration returns the minimum duration of a sample.
func (m *Machine) MinDuration() time.Duration {
	if m.Once {
		return 0
	}
	least := MinSample
	if m.OnGPU() {
		least = MinSampleGPU
	}
	if m.Quick {
		least /= 10
	}
	return least
}

// Copies returns how often a program should contain an operation that moves the given number of bytes. Each copy is used
// once per run. Together they are four times as large as the largest cache of a GPU, of 50 MB, so operands come from
// memory. On CPUs and for profilers there is one copy.
func (m *Machine) Copies(bytes int64) int {
	if !m.OnGPU() || m.Quick || m.Once {
		return 1
	}
	return copies(bytes)
}

func copies(bytes int64) int {
	const cache, most = 50 << 20, 64
	return int(min(most, (4*cache+bytes-1)/bytes))
}

// measurePeaks measures the peaks again, if the devices support it.
func (m *Machine) measurePeaks() error {
	if m.Quick && m.peaks[0].Flops > 0 {
		return nil
	}
	for p, dev := range m.devices {
		meter, ok := dev.(backend.Meter)
		if !ok {
			continue
		}
		peak, err := meter.Peak()
		if err != nil {
			return err
		}
		m.peaks[p].Flops = max(m.peaks[p].Flops, peak.FlopsPerSecond)
		for q := range m.peaks { // memory knows of no precision
			m.peaks[q].Bytes = max(m.peaks[q].Bytes, peak.BytesPerSecond)
		}
	}
	return nil
}

// GainsByBF16 reports whether products are clearly faster if operands may be rounded to bf16. If not, bf16 in other
// programs may be extremely slow.
func (m *Machine) GainsByBF16() (bool, error) {
	for range 4 { // other programs may have the machine now and then
		if err := m.measurePeaks(); err != nil {
			return false, err
		}
	}
	return m.peaks[backend.BF16].Flops > 1.5*m.peaks[backend.F32].Flops, nil
}

// Hold compares a row with the peaks of a precision.
func (m *Machine) Hold(row *bench.Row, p backend.Precision) { m.held[p] = append(m.held[p], row) }

// Task returns a task for a row of lorafuse that is compared with the peaks. If the row has no cost, the cost is
// computed from the program's shapes.
func (m *Machine) Task(row *bench.Row, p backend.Precision, spec func() Spec) bench.Task {
	m.Hold(row, p)
	return bench.Task{Row: row, Begin: func(ctx context.Context) (bench.Sampler, error) {
		x, err := New(ctx, m.devices[p], spec())
		if err != nil {
			return nil, err
		}
		if row.Flops == 0 {
			flops, bytes := x.Cost()
			row.Flops, row.Bytes = float64(flops), int64(bytes)
		}
		return x.Sampler(m.MinDuration(), m.OnGPU() && !m.Once), nil
	}}
}

// Report returns a new report of measurements on the machine.
func (m *Machine) Report(title string) *bench.Report {
	r := &bench.Report{Title: title, Environment: bench.Machine("")}
	r.Environment.Device, r.Environment.Threads = m.Info.Detail, m.Threads
	if m.OnGPU() { // else the machine itself, which is named
		r.Environment.Device = m.Info.Name + ", " + m.Info.Detail
	}
	return r
}

// OnGPU reports whether the device is a GPU. GPUs and CPUs have different targets.
func (m *Machine) OnGPU() bool { return m.Info.GPU }

// Device returns the device that computes with a precision.
func (m *Machine) Device(p backend.Precision) backend.Device { return m.devices[p] }

// Close closes the devices.
func (m *Machine) Close() error {
	var err error
	for _, d := range m.devices {
		if d != nil {
			err = errors.Join(err, d.Close())
		}
	}
	return err
}
