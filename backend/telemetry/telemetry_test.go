package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/telemetry"
)

func ptr[T any](v T) *T { return &v }

// The process is there on every machine; what is missing is said.
func TestRead(t *testing.T) {
	m := telemetry.Open()
	defer func() { require.NoError(t, m.Close()) }()
	s := m.Read()
	assert.Positive(t, s.Process.Goroutines)
	if runtime.GOOS == "linux" {
		assert.Greater(t, s.Process.ResidentBytes, int64(1<<20))
		assert.GreaterOrEqual(t, s.Process.PeakBytes, s.Process.ResidentBytes/2)
	}
	if len(s.GPUs) == 0 && m.Missing() != nil {
		assert.ErrorIs(t, m.Missing(), telemetry.ErrUnavailable)
	}
	text, err := json.Marshal(s)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"gpus":[`)
}

func TestEnergy(t *testing.T) {
	at := func(a, b *float64) telemetry.Sample {
		return telemetry.Sample{GPUs: []telemetry.GPU{{UUID: "a", EnergyJoules: a}, {UUID: "b", EnergyJoules: b}, {UUID: "c"}}}
	}
	for _, c := range []struct {
		from, to telemetry.Sample
		uuids    []string
		want     float64
		ok       bool
	}{
		{at(ptr(10.), ptr(1.)), at(ptr(25.), ptr(3.)), nil, 17, true},
		{at(ptr(10.), ptr(1.)), at(ptr(25.), ptr(3.)), []string{"b"}, 2, true},
		{at(ptr(10.), ptr(1.)), at(ptr(25.), ptr(3.)), []string{"c"}, 0, false},
		{at(nil, ptr(1.)), at(ptr(25.), ptr(3.)), nil, 2, true},
		{telemetry.Sample{}, at(ptr(25.), ptr(3.)), nil, 0, false},
	} {
		got, ok := telemetry.Energy(c.from, c.to, c.uuids...)
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.ok, ok)
	}
}

const promised = `# HELP lorafuse_train_loss Mean loss.
# TYPE lorafuse_train_loss gauge
lorafuse_train_loss NaN
# HELP lorafuse_train_tokens_total Tokens \\ so far\nin all.
# TYPE lorafuse_train_tokens_total counter
lorafuse_train_tokens_total 1e+06
# HELP process_resident_memory_bytes Memory of the process in pages that are there.
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 4096
# HELP process_cpu_seconds_total Time of all threads on processors.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
# HELP go_goroutines Goroutines that exist.
# TYPE go_goroutines gauge
go_goroutines 3
# HELP lorafuse_gpu_memory_used_bytes Memory of the device in use, by anybody.
# TYPE lorafuse_gpu_memory_used_bytes gauge
lorafuse_gpu_memory_used_bytes{gpu="0",uuid="GPU-1",name="NVIDIA \"X\""} 1024
lorafuse_gpu_memory_used_bytes{gpu="1",uuid="GPU-2",name=""} 0
# HELP lorafuse_gpu_power_watts Power drawn.
# TYPE lorafuse_gpu_power_watts gauge
lorafuse_gpu_power_watts{gpu="1",uuid="GPU-2",name=""} 71.25
# HELP lorafuse_gpu_sm_clock_hertz Clock of the multiprocessors.
# TYPE lorafuse_gpu_sm_clock_hertz gauge
lorafuse_gpu_sm_clock_hertz{gpu="0",uuid="GPU-1",name="NVIDIA \"X\""} 1.98e+09
# HELP lorafuse_gpu_throttled Whether clocks are held down by power, heat or hardware: 1, or 0.
# TYPE lorafuse_gpu_throttled gauge
lorafuse_gpu_throttled{gpu="0",uuid="GPU-1",name="NVIDIA \"X\""} 1
# HELP lorafuse_gpu_processes Processes that compute on the device.
# TYPE lorafuse_gpu_processes gauge
lorafuse_gpu_processes{gpu="0",uuid="GPU-1",name="NVIDIA \"X\""} 1
lorafuse_gpu_processes{gpu="1",uuid="GPU-2",name=""} 0
`

func TestPrometheusText(t *testing.T) {
	var b bytes.Buffer
	nan := 0.0
	nan /= nan
	require.NoError(t, telemetry.WritePrometheus(&b, telemetry.Sample{
		Process: telemetry.Process{ResidentBytes: 4096, CPUSeconds: 1.5, Goroutines: 3},
		GPUs: []telemetry.GPU{
			{UUID: "GPU-1", Name: `NVIDIA "X"`, MemoryUsed: ptr(int64(1024)), SMClockMHz: ptr(1980.), Throttled: []string{"power cap"}, Processes: make([]telemetry.GPUProcess, 1)},
			{Index: 1, UUID: "GPU-2", MemoryUsed: ptr(int64(0)), PowerWatts: ptr(71.25)},
		},
	}, telemetry.Metric{Name: "lorafuse_train_loss", Help: "Mean loss.", Value: nan},
		telemetry.Metric{Name: "lorafuse_train_tokens_total", Help: "Tokens \\ so far\nin all.", Counter: true, Value: 1e6}))
	assert.Equal(t, promised, b.String())
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestPrometheusTellsOfErrors(t *testing.T) {
	require.ErrorIs(t, telemetry.WritePrometheus(brokenPipe{}, telemetry.Sample{}), io.ErrClosedPipe)
}

func TestServer(t *testing.T) {
	m := telemetry.Open()
	defer m.Close()
	s, err := telemetry.Serve("127.0.0.1:0", m, func() []telemetry.Metric {
		return []telemetry.Metric{{Name: "lorafuse_train_step", Help: "Steps.", Value: 7}}
	})
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r, err := http.Get(fmt.Sprintf("http://%s/metrics", s.Addr()))
			if !assert.NoError(t, err) {
				return
			}
			defer r.Body.Close()
			text, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.True(t, strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain; version=0.0.4"))
			assert.Contains(t, string(text), "\nlorafuse_train_step 7\n")
			assert.Contains(t, string(text), "\nprocess_cpu_seconds_total ")
		})
	}
	all.Wait()
	r, err := http.Get(fmt.Sprintf("http://%s/", s.Addr()))
	require.NoError(t, err)
	r.Body.Close()
	assert.Equal(t, http.StatusNotFound, r.StatusCode)

	_, err = telemetry.Serve(s.Addr(), m, nil)
	require.ErrorContains(t, err, s.Addr(), "the address is taken")
	require.NoError(t, s.Close())
	_, err = http.Get(fmt.Sprintf("http://%s/metrics", s.Addr()))
	require.Error(t, err)
}

func TestSampler(t *testing.T) {
	m := telemetry.Open()
	defer m.Close()
	s := telemetry.Start(m, time.Millisecond)
	first := s.Last()
	require.False(t, first.Time.IsZero())
	require.Eventually(t, func() bool { return s.Last().Time.After(first.Time) }, time.Minute, time.Millisecond)
	s.Close()
	last := s.Last()
	time.Sleep(5 * time.Millisecond)
	require.Equal(t, last.Time, s.Last().Time)
}
