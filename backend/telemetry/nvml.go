//go:build cuda && linux

package telemetry

import (
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// EnvLibrary names the environment variable with the path of NVML, for hosts
// that keep it in an unusual place.
const EnvLibrary = "LORAFUSE_LIBNVML"

func openGPUs() (gpus, error) {
	var options []nvml.LibraryOption
	if path := os.Getenv(EnvLibrary); path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	return open(nvml.New(options...))
}

// library is NVML, opened. A function that the driver's library lacks would end
// the process when it is called, not return an error: go-nvml leaves its symbols
// to the dynamic linker. So nothing is called before Init has succeeded, and
// nothing that has not been found by its name.
type library struct {
	nvml.Interface

	mu    sync.Mutex
	found map[string]bool
}

func open(api nvml.Interface) (gpus, error) {
	if r := api.Init(); r != nvml.SUCCESS {
		// nvml.ErrorString would call into a library that may be missing.
		return nil, fmt.Errorf("%w: NVML does not start: %s", ErrUnavailable, reason(r))
	}
	return &library{Interface: api, found: map[string]bool{}}, nil
}

// reason returns an explanation of the usual failures of Init.
func reason(r nvml.Return) string {
	switch r {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "libnvidia-ml.so.1 is not there: no NVIDIA driver"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the NVIDIA driver is not loaded"
	case nvml.ERROR_NO_PERMISSION:
		return "no permission to talk to the driver"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "library and driver are of different versions: reboot, or reload the driver"
	}
	return fmt.Sprintf("error %d", int(r))
}

// has reports whether the library has all functions of these names.
func (l *library) has(names ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		ok, known := l.found[name]
		if !known {
			ok = l.Extensions().LookupSymbol(name) == nil
			l.found[name] = ok
		}
		if !ok {
			return false
		}
	}
	return true
}

// hasOne reports whether the library has one of these functions: versions of one function, of which go-nvml calls the
// newest.
func (l *library) hasOne(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return l.has(name) })
}

func (l *library) close() error {
	if !l.has("nvmlShutdown") {
		return nil
	}
	if r := l.Shutdown(); r != nvml.SUCCESS {
		return fmt.Errorf("telemetry: NVML does not stop: error %d", int(r))
	}
	return nil
}

func (l *library) read() []GPU {
	if !l.hasOne("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount") || !l.hasOne("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex") {
		return nil
	}
	n, r := l.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil
	}
	driver := ""
	if l.has("nvmlSystemGetDriverVersion") {
		driver, _ = l.SystemGetDriverVersion()
	}
	var all []GPU
	for i := range n {
		d, r := l.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS { // one that has fallen off the bus
			continue
		}
		g := l.device(i, d)
		g.Driver = driver
		parts := l.instances(&g, d)
		all = append(append(all, g), parts...)
	}
	return all
}

// device reads one device.
func (l *library) device(index int, d nvml.Device) GPU {
	g := GPU{Index: index}
	if l.has("nvmlDeviceGetName") {
		g.Name, _ = d.GetName()
	}
	if l.has("nvmlDeviceGetUUID") {
		g.UUID, _ = d.GetUUID()
	}
	if l.has("nvmlDeviceGetMemoryInfo") {
		if m, r := d.GetMemoryInfo(); r == nvml.SUCCESS {
			used, total := int64(m.Used), int64(m.Total)
			g.MemoryUsed, g.MemoryTotal = &used, &total
		}
	}
	if l.has("nvmlDeviceGetUtilizationRates") {
		if u, r := d.GetUtilizationRates(); r == nvml.SUCCESS {
			gpu, memory := float64(u.Gpu)/100, float64(u.Memory)/100
			g.Utilization, g.MemoryUtilization = &gpu, &memory
		}
	}
	g.PowerWatts = number(l, "nvmlDeviceGetPowerUsage", d.GetPowerUsage, 1e-3)
	g.PowerLimitWatts = number(l, "nvmlDeviceGetEnforcedPowerLimit", d.GetEnforcedPowerLimit, 1e-3)
	g.EnergyJoules = number(l, "nvmlDeviceGetTotalEnergyConsumption", d.GetTotalEnergyConsumption, 1e-3)
	g.TemperatureC = number(l, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) { return d.GetTemperature(nvml.TEMPERATURE_GPU) }, 1)
	g.SMClockMHz = number(l, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return d.GetClockInfo(nvml.CLOCK_SM) }, 1)
	g.MemoryClockMHz = number(l, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return d.GetClockInfo(nvml.CLOCK_MEM) }, 1)
	g.SMClockMaxMHz = number(l, "nvmlDeviceGetMaxClockInfo", func() (uint32, nvml.Return) { return d.GetMaxClockInfo(nvml.CLOCK_SM) }, 1)
	g.Throttled = l.throttled(d)
	g.PCIeGeneration = whole(l, "nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration)
	g.PCIeWidth = whole(l, "nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth)
	g.PCIeTx = number(l, "nvmlDeviceGetPcieThroughput", func() (uint32, nvml.Return) { return d.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES) }, 1<<10)
	g.PCIeRx = number(l, "nvmlDeviceGetPcieThroughput", func() (uint32, nvml.Return) { return d.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES) }, 1<<10)
	g.NVLinks = l.links(d)
	g.Processes = l.processes(d)
	return g
}

// number reads a value and multiplies it by scale. It returns nil if the library lacks the function or the device
// does not support it.
func number[T uint32 | uint64](l *library, symbol string, get func() (T, nvml.Return), scale float64) *float64 {
	if !l.has(symbol) {
		return nil
	}
	n, r := get()
	if r != nvml.SUCCESS {
		return nil
	}
	v := float64(n) * scale
	return &v
}

func whole(l *library, symbol string, get func() (int, nvml.Return)) *int {
	if !l.has(symbol) {
		return nil
	}
	n, r := get()
	if r != nvml.SUCCESS {
		return nil
	}
	return &n
}

// reasons names the bits of clock throttling. Idle devices and user-set clocks are not throttling.
var reasons = map[uint64]string{
	nvml.ClocksEventReasonSwPowerCap:              "power cap",
	nvml.ClocksThrottleReasonHwSlowdown:           "hardware slowdown",
	nvml.ClocksEventReasonSyncBoost:               "sync boost",
	nvml.ClocksEventReasonSwThermalSlowdown:       "thermal, software",
	nvml.ClocksThrottleReasonHwThermalSlowdown:    "thermal, hardware",
	nvml.ClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
}

func (l *library) throttled(d nvml.Device) []string {
	var mask uint64
	r := nvml.Return(nvml.ERROR_FUNCTION_NOT_FOUND)
	switch {
	case l.has("nvmlDeviceGetCurrentClocksEventReasons"):
		mask, r = d.GetCurrentClocksEventReasons()
	case l.has("nvmlDeviceGetCurrentClocksThrottleReasons"): // its name before driver 535
		mask, r = d.GetCurrentClocksThrottleReasons()
	}
	var names []string
	if r == nvml.SUCCESS {
		for ; mask != 0; mask &= mask - 1 {
			if name := reasons[1<<bits.TrailingZeros64(mask)]; name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// links counts the NVLinks that are up; nil for devices without any.
func (l *library) links(d nvml.Device) *int {
	if !l.has("nvmlDeviceGetNvLinkState") {
		return nil
	}
	up, any := 0, false
	for i := range nvml.NVLINK_MAX_LINKS {
		state, r := d.GetNvLinkState(i)
		if r != nvml.SUCCESS {
			break
		}
		any = true
		if state == nvml.FEATURE_ENABLED {
			up++
		}
	}
	if !any {
		return nil
	}
	return &up
}

func (l *library) processes(d nvml.Device) []GPUProcess {
	if !l.hasOne("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses") {
		return nil
	}
	infos, r := d.GetComputeRunningProcesses()
	if r != nvml.SUCCESS {
		return nil
	}
	var all []GPUProcess
	for _, p := range infos {
		memory := int64(p.UsedGpuMemory)
		all = append(all, GPUProcess{PID: int(p.Pid), MemoryBytes: max(0, memory)}) // -1: not known
	}
	return all
}

// instances returns the MIG instances of device g, and records in g that MIG is on.
func (l *library) instances(g *GPU, d nvml.Device) []GPU {
	if !l.has("nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
	if mode, _, r := d.GetMigMode(); r != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	g.MIG = "enabled"
	most, r := d.GetMaxMigDeviceCount()
	if r != nvml.SUCCESS {
		return nil
	}
	var all []GPU
	for i := range most {
		m, r := d.GetMigDeviceHandleByIndex(i)
		if r != nvml.SUCCESS {
			continue
		}
		instance := l.device(g.Index, m)
		instance.MIG, instance.Driver = g.UUID, g.Driver
		if !strings.Contains(instance.Name, "MIG") {
			instance.Name = strings.TrimSpace(instance.Name + " MIG")
		}
		all = append(all, instance)
	}
	return all
}
