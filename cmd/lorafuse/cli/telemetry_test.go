package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/telemetry"
	"github.com/lorafuse/lorafuse/internal/train"
)

// A run answers with its last step, and stops answering when it ends.
func TestMetricsOfARun(t *testing.T) {
	var notes bytes.Buffer
	a := &app{out: &output{w: &bytes.Buffer{}}, err: &notes}
	w, err := a.watch("127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + w.server.Addr() + "/metrics"
	get := func() string {
		r, err := http.Get(url)
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(text)
	}
	assert.NotContains(t, get(), "lorafuse_train_loss", "no step yet")
	loss := 2.5
	w.see(train.Report{Step: 3, Steps: 10, Loss: 1.25, Tokens: 4096, FlopsPerSecond: 1e9, MFU: 0.25, Eval: &loss})
	w.see(train.Report{Step: 4, Steps: 10, Loss: 1.125, Tokens: 8192})
	text := get()
	for _, line := range []string{"lorafuse_train_step 4", "lorafuse_train_steps 10", "lorafuse_train_tokens_total 8192", "lorafuse_train_loss 1.125", "lorafuse_train_flops_per_second 1e+09", "lorafuse_train_mfu 0.25", "lorafuse_eval_loss 2.5"} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	_, err = a.watch(w.server.Addr())
	require.ErrorContains(t, err, "--metrics-addr")
	require.NoError(t, w.close())
	_, err = http.Get(url)
	require.Error(t, err)
	a.close()
	assert.Contains(t, notes.String(), url)
}

// Without GPUs and without anybody to answer, nothing is watched.
func TestNothingToWatch(t *testing.T) {
	w, err := (&app{}).watch("")
	require.NoError(t, err)
	if w == nil {
		assert.Empty(t, w.tail())
		assert.Empty(t, w.figures())
		w.see(train.Report{})
	}
	require.NoError(t, w.close())
}

// What is recorded, shown and printed of a GPU.
func TestFiguresOfGPUs(t *testing.T) {
	m := telemetry.Open()
	defer m.Close()
	w := &watched{meter: m, sampler: telemetry.Start(m, time.Hour)}
	defer w.sampler.Close()
	require.Empty(t, (&watched{sampler: w.sampler}).tail())

	joules, power, used, total := 100.0, 250.0, int64(3<<30), int64(80<<30)
	const uuid = "5a7c1d0e-0123-4567-89ab-cdef01234567"
	other := telemetry.GPU{UUID: "GPU-0", EnergyJoules: &joules, PowerWatts: &power, MemoryUsed: &total}
	gpu := telemetry.GPU{Index: 1, UUID: "GPU-" + uuid, Name: "NVIDIA X", EnergyJoules: &joules, PowerWatts: &power, MemoryUsed: &used, MemoryTotal: &total, Throttled: []string{"power cap"}}
	first := telemetry.Sample{Time: time.Unix(0, 0), GPUs: []telemetry.GPU{other, gpu}}
	after, more := 400.0, 9000.0
	gpu.EnergyJoules, other.EnergyJoules = &after, &more
	second := telemetry.Sample{Time: time.Unix(5, 0), GPUs: []telemetry.GPU{other, gpu}}

	w.see(train.Report{Step: 1, Tokens: 3000})
	w.from = first
	require.Empty(t, w.figuresOf(second), "nothing computes on a GPU")
	w.on(backend.Info{UUID: uuid})
	w.from = first
	got := map[string]float64{}
	for _, s := range w.figuresOf(second) {
		got[s.Name] = s.Value
	}
	assert.Equal(t, map[string]float64{"joules_per_1000_tokens": 100, "gpu_power_watts": 250, "gpu_memory_used_bytes": 3 << 30}, got)
	for _, s := range w.figuresOf(second) { // no tokens since
		assert.NotEqual(t, "joules_per_1000_tokens", s.Name)
	}
	assert.Equal(t, ", gpu 250 W 3.00 GiB (slowed: power cap)", tailOf(second, uuid))
	assert.Empty(t, tailOf(second, ""))
	instance := telemetry.Sample{GPUs: []telemetry.GPU{gpu, {Index: 1, UUID: "MIG-2", MIG: gpu.UUID, MemoryUsed: &used}}}
	assert.Equal(t, ", gpu 3.00 GiB", tailOf(instance, "2"), "what an instance takes of the power is not measured")

	var out bytes.Buffer
	(&app{out: &output{w: &out}}).printSample(first, second)
	assert.Contains(t, out.String(), "  1  NVIDIA X  3.00 GiB of 80.00 GiB, 250 W, slowed: power cap\n")
}

// seen is what was printed until something was, which ends the watching.
type seen struct {
	bytes.Buffer
	stop func()
}

func (s *seen) Write(text []byte) (int, error) {
	defer s.stop()
	return s.Buffer.Write(text)
}

func TestWatchDevices(t *testing.T) {
	var notes bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := seen{stop: cancel}
	require.Zero(t, Run(ctx, []string{"devices", "--watch=20ms", "--json"}, strings.NewReader(""), &out, &notes))
	var s telemetry.Sample
	require.NoError(t, json.NewDecoder(&out.Buffer).Decode(&s))
	assert.Positive(t, s.Process.Goroutines)
}

// The progress of a run has the share of the device's peak, where that is known,
// also in steps whose work is not counted.
func TestMFUInProgress(t *testing.T) {
	var notes bytes.Buffer
	a := &app{out: &output{w: &bytes.Buffer{}}, err: &notes}
	o := (&onlooker{app: a}).observer("")
	o.Step(train.Report{Step: 1, Steps: 2, MFU: 0.4123})
	o.Step(train.Report{Step: 2, Steps: 2})
	a.close()
	assert.Equal(t, 2, strings.Count(notes.String(), "tokens/s, MFU 41.2 %"), notes.String())
}
