package telemetry

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Metric is a metric of a run, exported next to the machine's.
type Metric struct {
	Name    string // such as lorafuse_train_loss
	Help    string
	Counter bool // it only grows; else a gauge
	Value   float64
}

// WritePrometheus writes a sample and the figures of a run in Prometheus' text
// format, version 0.0.4.
func WritePrometheus(w io.Writer, s Sample, run ...Metric) error {
	b := bufio.NewWriter(w)
	for _, m := range run {
		family(b, m.Name, m.Help, m.Counter)
		line(b, m.Name, nil, m.Value)
	}
	family(b, "process_resident_memory_bytes", "Memory of the process in pages that are there.", false)
	line(b, "process_resident_memory_bytes", nil, float64(s.Process.ResidentBytes))
	family(b, "process_cpu_seconds_total", "Time of all threads on processors.", true)
	line(b, "process_cpu_seconds_total", nil, s.Process.CPUSeconds)
	family(b, "go_goroutines", "Goroutines that exist.", false)
	line(b, "go_goroutines", nil, float64(s.Process.Goroutines))
	for _, f := range gpuFamilies {
		first := true
		for i := range s.GPUs {
			g := &s.GPUs[i]
			v, ok := f.value(g)
			if !ok {
				continue
			}
			if first {
				family(b, f.name, f.help, f.counter)
				first = false
			}
			line(b, f.name, []string{"gpu", strconv.Itoa(g.Index), "uuid", g.UUID, "name", g.Name}, v)
		}
	}
	return b.Flush()
}

// gpuFamily is a metric that devices have.
type gpuFamily struct {
	name, help string
	counter    bool
	value      func(g *GPU) (float64, bool)
}

var gpuFamilies = []gpuFamily{
	{"lorafuse_gpu_memory_used_bytes", "Memory of the device in use, by anybody.", false, whole64(func(g *GPU) *int64 { return g.MemoryUsed })},
	{"lorafuse_gpu_memory_total_bytes", "Memory of the device.", false, whole64(func(g *GPU) *int64 { return g.MemoryTotal })},
	{"lorafuse_gpu_utilization_ratio", "Share of the last moments in which a kernel ran.", false, real(func(g *GPU) *float64 { return g.Utilization })},
	{"lorafuse_gpu_memory_utilization_ratio", "Share of the last moments in which memory was read or written.", false, real(func(g *GPU) *float64 { return g.MemoryUtilization })},
	{"lorafuse_gpu_power_watts", "Power drawn.", false, real(func(g *GPU) *float64 { return g.PowerWatts })},
	{"lorafuse_gpu_power_limit_watts", "Power that may be drawn.", false, real(func(g *GPU) *float64 { return g.PowerLimitWatts })},
	{"lorafuse_gpu_energy_joules_total", "Energy used since the driver was loaded.", true, real(func(g *GPU) *float64 { return g.EnergyJoules })},
	{"lorafuse_gpu_temperature_celsius", "Temperature of the chip.", false, real(func(g *GPU) *float64 { return g.TemperatureC })},
	{"lorafuse_gpu_sm_clock_hertz", "Clock of the multiprocessors.", false, mega(func(g *GPU) *float64 { return g.SMClockMHz })},
	{"lorafuse_gpu_memory_clock_hertz", "Clock of the memory.", false, mega(func(g *GPU) *float64 { return g.MemoryClockMHz })},
	{"lorafuse_gpu_throttled", "Whether clocks are held down by power, heat or hardware: 1, or 0.", false, func(g *GPU) (float64, bool) {
		if len(g.Throttled) > 0 {
			return 1, true
		}
		return 0, g.SMClockMHz != nil
	}},
	{"lorafuse_gpu_pcie_transmit_bytes_per_second", "Rate of what the device sends over PCIe.", false, real(func(g *GPU) *float64 { return g.PCIeTx })},
	{"lorafuse_gpu_pcie_receive_bytes_per_second", "Rate of what the device receives over PCIe.", false, real(func(g *GPU) *float64 { return g.PCIeRx })},
	{"lorafuse_gpu_processes", "Processes that compute on the device.", false, func(g *GPU) (float64, bool) { return float64(len(g.Processes)), g.MemoryUsed != nil }},
}

func real(field func(g *GPU) *float64) func(g *GPU) (float64, bool) {
	return func(g *GPU) (float64, bool) {
		if v := field(g); v != nil {
			return *v, true
		}
		return 0, false
	}
}

func mega(field func(g *GPU) *float64) func(g *GPU) (float64, bool) {
	return func(g *GPU) (float64, bool) {
		v, ok := real(field)(g)
		return 1e6 * v, ok
	}
}

func whole64(field func(g *GPU) *int64) func(g *GPU) (float64, bool) {
	return func(g *GPU) (float64, bool) {
		if v := field(g); v != nil {
			return float64(*v), true
		}
		return 0, false
	}
}

func family(b *bufio.Writer, name, help string, counter bool) {
	kind := "gauge"
	if counter {
		kind = "counter"
	}
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(help), name, kind)
}

var labelText = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// line writes a value with labels: names and values in turn.
func line(b *bufio.Writer, name string, labels []string, v float64) {
	b.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(b, `%s="%s"`, labels[i], labelText.Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		b.WriteByte('}')
	}
	text := strconv.FormatFloat(v, 'g', -1, 64)
	switch {
	case math.IsInf(v, 1):
		text = "+Inf"
	case math.IsInf(v, -1):
		text = "-Inf"
	}
	fmt.Fprintf(b, " %s\n", text)
}
