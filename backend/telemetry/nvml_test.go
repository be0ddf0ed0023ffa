//go:build cuda && linux

package telemetry

import (
	"errors"
	"fmt"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// server is a machine with eight GPUs that has all functions but those named.
func server(lacks ...string) *dgxa100.Server {
	s := dgxa100.New()
	s.LookupSymbolFunc = func(symbol string) error {
		for _, name := range lacks {
			if symbol == name || name == "all" {
				return errors.New("no such symbol")
			}
		}
		return nil
	}
	for i, d := range s.Devices {
		m := &d.(*dgxa100.Device).Device
		m.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
			return nvml.Memory{Total: 40 << 30, Used: uint64(i) << 30, Free: uint64(40-i) << 30}, nvml.SUCCESS
		}
		m.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: 93, Memory: 41}, nvml.SUCCESS
		}
		m.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 287_500, nvml.SUCCESS }
		m.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 400_000, nvml.SUCCESS }
		m.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 5_000_000_000_123, nvml.SUCCESS }
		m.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 64, nvml.SUCCESS }
		m.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
			return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1410, nvml.CLOCK_MEM: 1215}[c], nvml.SUCCESS
		}
		m.GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 1410, nvml.SUCCESS }
		m.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) {
			return nvml.ClocksEventReasonSwPowerCap | nvml.ClocksEventReasonGpuIdle | nvml.ClocksThrottleReasonHwThermalSlowdown | 1<<40, nvml.SUCCESS
		}
		m.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return nvml.ClocksThrottleReasonHwSlowdown, nvml.SUCCESS }
		m.GetCurrPcieLinkGenerationFunc = func() (int, nvml.Return) { return 4, nvml.SUCCESS }
		m.GetCurrPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, nvml.SUCCESS }
		m.GetPcieThroughputFunc = func(c nvml.PcieUtilCounter) (uint32, nvml.Return) {
			if c == nvml.PCIE_UTIL_RX_BYTES {
				return 0, nvml.ERROR_NOT_SUPPORTED
			}
			return 2048, nvml.SUCCESS
		}
		m.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			switch {
			case link >= 12:
				return 0, nvml.ERROR_INVALID_ARGUMENT
			case link == 3:
				return nvml.FEATURE_DISABLED, nvml.SUCCESS
			}
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		m.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 17, UsedGpuMemory: 1 << 30}, {Pid: 18, UsedGpuMemory: ^uint64(0)}}, nvml.SUCCESS
		}
	}
	return s
}

func gpusOf(t *testing.T, s nvml.Interface) []GPU {
	g, err := open(s)
	require.NoError(t, err)
	m := &Meter{gpus: g}
	defer func() { require.NoError(t, m.Close()) }()
	return m.Read().GPUs
}

func TestGPUs(t *testing.T) {
	s := server()
	all := gpusOf(t, s)
	require.Len(t, all, 8)
	g := all[3]
	assert.Equal(t, 3, g.Index)
	assert.Equal(t, s.Devices[3].(*dgxa100.Device).UUID, g.UUID)
	assert.Equal(t, "Mock NVIDIA A100-SXM4-40GB", g.Name)
	assert.Equal(t, s.DriverVersion, g.Driver)
	assert.Empty(t, g.MIG)
	assert.Equal(t, int64(3<<30), *g.MemoryUsed)
	assert.Equal(t, int64(40<<30), *g.MemoryTotal)
	assert.Equal(t, 0.93, *g.Utilization)
	assert.Equal(t, 0.41, *g.MemoryUtilization)
	assert.Equal(t, 287.5, *g.PowerWatts)
	assert.Equal(t, 400.0, *g.PowerLimitWatts)
	assert.InDelta(t, 5_000_000_000.123, *g.EnergyJoules, 1e-3)
	assert.Equal(t, 64.0, *g.TemperatureC)
	assert.Equal(t, 1410.0, *g.SMClockMHz)
	assert.Equal(t, 1410.0, *g.SMClockMaxMHz)
	assert.Equal(t, 1215.0, *g.MemoryClockMHz)
	assert.Equal(t, []string{"power cap", "thermal, hardware"}, g.Throttled, "an idle device is not throttled; unknown bits are nothing")
	assert.Equal(t, 4, *g.PCIeGeneration)
	assert.Equal(t, 16, *g.PCIeWidth)
	assert.Equal(t, float64(2<<20), *g.PCIeTx)
	assert.Nil(t, g.PCIeRx, "not supported")
	assert.Equal(t, 11, *g.NVLinks)
	assert.Equal(t, []GPUProcess{{17, 1 << 30}, {18, 0}}, g.Processes)
}

// A function that the driver's library lacks would end the process: it is not
// called. The mock panics in its place, since it has none.
func TestMissingFunctions(t *testing.T) {
	s := server("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperature", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetMigMode", "nvmlDeviceGetCount_v2",
		"nvmlDeviceGetComputeRunningProcesses_v3")
	for _, d := range s.Devices {
		m := &d.(*dgxa100.Device).Device
		m.GetCurrentClocksEventReasonsFunc, m.GetTemperatureFunc, m.GetPcieThroughputFunc, m.GetMigModeFunc = nil, nil, nil, nil
	}
	g := gpusOf(t, s)[0]
	assert.Nil(t, g.TemperatureC)
	assert.Nil(t, g.PCIeTx)
	assert.Equal(t, []string{"hardware slowdown"}, g.Throttled, "by the older name")
	assert.Len(t, g.Processes, 2, "by an older version")
	assert.NotNil(t, g.PowerWatts)

	none := server("all")
	none.DeviceGetCountFunc, none.ShutdownFunc = nil, nil
	assert.Empty(t, gpusOf(t, none))
}

// A device that no longer answers is left out, and so is each figure that one
// does not have.
func TestFailures(t *testing.T) {
	s := server()
	handle := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 2 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return handle(i)
	}
	m := &s.Devices[0].(*dgxa100.Device).Device
	m.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED }
	m.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	all := gpusOf(t, s)
	require.Len(t, all, 7)
	assert.Nil(t, all[0].Utilization)
	assert.Nil(t, all[0].NVLinks)
	assert.Equal(t, 3, all[2].Index)

	s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	assert.Empty(t, gpusOf(t, s))
}

func TestMIG(t *testing.T) {
	s := server()
	m := &s.Devices[1].(*dgxa100.Device).Device
	m.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS }
	m.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	part := &server().Devices[0].(*dgxa100.Device).Device
	part.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA A100 MIG 3g.20gb", nvml.SUCCESS }
	part.GetUUIDFunc = func() (string, nvml.Return) { return "MIG-1", nvml.SUCCESS }
	part.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED }
	m.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 4 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return part, nvml.SUCCESS
	}
	all := gpusOf(t, s)
	require.Len(t, all, 9)
	assert.Equal(t, "enabled", all[1].MIG)
	assert.Equal(t, all[1].UUID, all[2].MIG)
	assert.Equal(t, "MIG-1", all[2].UUID)
	assert.Equal(t, 1, all[2].Index)
	assert.Equal(t, "NVIDIA A100 MIG 3g.20gb", all[2].Name)
	assert.Nil(t, all[2].Utilization)
}

// A run finds its GPU by what CUDA says of it, whatever place CUDA_VISIBLE_DEVICES
// gives it, and an instance beside the GPU that it is of.
func TestOf(t *testing.T) {
	s := server()
	for i, d := range s.Devices {
		m := &d.(*dgxa100.Device).Device
		m.GetUUIDFunc = func() (string, nvml.Return) {
			return fmt.Sprintf("GPU-%08x-0000-4000-8000-00000000000A", i), nvml.SUCCESS
		}
		m.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return uint64(1000 * i), nvml.SUCCESS }
	}
	m := &s.Devices[5].(*dgxa100.Device).Device
	m.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS }
	m.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 1, nvml.SUCCESS }
	part := &server().Devices[0].(*dgxa100.Device).Device
	part.GetUUIDFunc = func() (string, nvml.Return) { return "MIG-0badcafe-0000-4000-8000-00000000000a", nvml.SUCCESS }
	part.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	m.GetMigDeviceHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return part, nvml.SUCCESS }

	from := Sample{GPUs: gpusOf(t, s)}
	to := Sample{GPUs: gpusOf(t, s)}
	grown := *to.GPUs[3].EnergyJoules + 7
	to.GPUs[3].EnergyJoules = &grown
	const third, instance = "00000003-0000-4000-8000-00000000000a", "0badcafe-0000-4000-8000-00000000000a"
	require.Equal(t, 3, to.Of(third).Index)
	joules, ok := Energy(from, to, third)
	assert.True(t, ok)
	assert.Equal(t, 7.0, joules)
	require.Equal(t, 5, to.Of(instance).Index)
	assert.NotEmpty(t, to.Of(instance).MIG)
	_, ok = Energy(from, to, instance)
	assert.False(t, ok, "only the whole GPU is measured")
	assert.Nil(t, to.Of(""))
	assert.Nil(t, to.Of("00000009-0000-4000-8000-00000000000a"))
}

func TestNoDriver(t *testing.T) {
	for _, r := range []nvml.Return{nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_UNKNOWN} {
		_, err := open(&mock.Interface{InitFunc: func() nvml.Return { return r }})
		require.ErrorIs(t, err, ErrUnavailable)
	}
	t.Setenv(EnvLibrary, t.TempDir()+"/libnvidia-ml.so.1")
	m := Open() // the real one: the process lives
	require.ErrorIs(t, m.Missing(), ErrUnavailable)
	require.Empty(t, m.Read().GPUs)
	require.NoError(t, m.Close())
}
