package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/telemetry"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
)

// sampleEvery is the interval at which a run samples its machine.
const sampleEvery = time.Second

// watched adds samples of the machine to the steps of a training run. A nil watched does nothing.
type watched struct {
	meter   *telemetry.Meter
	sampler *telemetry.Sampler
	server  *telemetry.Server

	mu       sync.Mutex
	device   string // the UUID of the GPU that computes, if one does
	step     train.Report
	ended    time.Time // when the step did
	evals    *float64
	accuracy *float64         // of a classifier
	from     telemetry.Sample // when figures were asked for last
	tokens   int64            // until then
}

// watch starts to sample the machine of a run if it has GPUs or metrics are served at addr; otherwise it returns nil.
func (a *app) watch(addr string) (*watched, error) {
	m := telemetry.Open()
	if addr == "" && m.Missing() != nil {
		return nil, m.Close()
	}
	w := &watched{meter: m, sampler: telemetry.Start(m, sampleEvery)}
	w.from = w.sampler.Last()
	if addr != "" {
		var err error
		if w.server, err = telemetry.Serve(addr, m, w.metrics); err != nil {
			return nil, errors.Join(fmt.Errorf("--metrics-addr: %w", err), w.close())
		}
		a.note("metrics  http://%s/metrics", w.server.Addr())
	}
	return w, nil
}

func (w *watched) close() error {
	if w == nil {
		return nil
	}
	var err error
	if w.server != nil {
		err = w.server.Close()
	}
	w.sampler.Close()
	return errors.Join(err, w.meter.Close())
}

// on sets the device of the run. Other GPUs are neither shown nor recorded, regardless of the numbering of
// CUDA_VISIBLE_DEVICES.
func (w *watched) on(d backend.Info) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.device, w.from = d.UUID, w.sampler.Last()
}

// see records a finished step.
func (w *watched) see(r train.Report) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.FlopsPerSecond == 0 { // not counted
		r.FlopsPerSecond, r.MFU = w.step.FlopsPerSecond, w.step.MFU
	}
	w.step, w.ended = r, time.Now()
	if r.Eval != nil {
		w.evals, w.accuracy = r.Eval, r.Accuracy
	}
}

// tail returns the GPU part of the progress line.
func (w *watched) tail() string {
	if w == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return tailOf(w.sampler.Last(), w.device)
}

func tailOf(now telemetry.Sample, uuid string) string {
	g := now.Of(uuid)
	if g == nil || g.PowerWatts == nil && g.MemoryUsed == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString(", gpu")
	if g.PowerWatts != nil {
		fmt.Fprintf(&b, " %.0f W", *g.PowerWatts)
	}
	if g.MemoryUsed != nil {
		fmt.Fprintf(&b, " %s", bytesize.Binary(*g.MemoryUsed))
	}
	if len(g.Throttled) > 0 {
		fmt.Fprintf(&b, " (slowed: %s)", strings.Join(g.Throttled, ", "))
	}
	return b.String()
}

// figures returns the scalars of the machine that are recorded with a step.
func (w *watched) figures() []events.Scalar {
	if w == nil {
		return nil
	}
	return w.figuresOf(w.sampler.Last())
}

// figuresOf returns the scalars of a sample, with the energy since the previous one.
func (w *watched) figuresOf(now telemetry.Sample) []events.Scalar {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []events.Scalar
	add := func(name string, v float64) { all = append(all, events.Scalar{Name: name, Value: v}) }
	g := now.Of(w.device)
	if g == nil {
		return nil
	}
	if joules, ok := telemetry.Energy(w.from, now, w.device); ok && w.step.Tokens > w.tokens && now.Time.After(w.from.Time) {
		add("joules_per_1000_tokens", 1000*joules/float64(w.step.Tokens-w.tokens))
		w.from, w.tokens = now, w.step.Tokens
	}
	if g.PowerWatts != nil {
		add("gpu_power_watts", *g.PowerWatts)
	}
	if g.MemoryUsed != nil {
		add("gpu_memory_used_bytes", float64(*g.MemoryUsed))
	}
	return all
}

// metrics returns the metrics of the run.
func (w *watched) metrics() []telemetry.Metric {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.step
	unit, loss := "tokens", "Mean loss of the last step, nats per token."
	if r.Unit == "images" {
		unit, loss = r.Unit, "Mean loss of the last step."
	}
	all := []telemetry.Metric{
		{Name: "lorafuse_train_step", Help: "Optimizer steps done.", Value: float64(r.Step)},
		{Name: "lorafuse_train_steps", Help: "Optimizer steps of the whole run.", Value: float64(r.Steps)},
		{Name: "lorafuse_train_" + unit + "_total", Help: strings.ToUpper(unit[:1]) + unit[1:] + " trained on by this process.", Counter: true, Value: float64(r.Tokens)},
	}
	if r.Step > 0 {
		all = append(all,
			telemetry.Metric{Name: lastStep, Help: "When the last step ended, since 1970.", Value: float64(w.ended.UnixMicro()) / 1e6},
			telemetry.Metric{Name: "lorafuse_train_loss", Help: loss, Value: r.Loss},
			telemetry.Metric{Name: "lorafuse_train_learning_rate", Help: "Learning rate of the last step.", Value: r.LearningRate},
			telemetry.Metric{Name: "lorafuse_train_grad_norm", Help: "Norm of the last step's gradient.", Value: r.GradNorm},
			telemetry.Metric{Name: "lorafuse_train_" + unit + "_per_second", Help: "Speed of the last step.", Value: r.TokensPerSecond},
			telemetry.Metric{Name: "lorafuse_train_flops_per_second", Help: "Floating-point operations of the last step, each second.", Value: r.FlopsPerSecond})
	}
	if r.MFU > 0 {
		all = append(all, telemetry.Metric{Name: "lorafuse_train_mfu", Help: "Share of these in the most that the device does by its data sheet.", Value: r.MFU})
	}
	if w.evals != nil {
		all = append(all, telemetry.Metric{Name: "lorafuse_eval_loss", Help: "Loss of the last evaluation, nats per token.", Value: *w.evals})
	}
	if w.accuracy != nil {
		all = append(all, telemetry.Metric{Name: "lorafuse_eval_accuracy", Help: "Share of the last evaluation that is right: of tokens, or of rows that are classified.", Value: *w.accuracy})
	}
	return all
}

// watchDevices prints samples until ctx ends.
func (a *app) watchDevices(ctx context.Context, every time.Duration, asJSON bool) error {
	m := telemetry.Open()
	defer m.Close()
	if err := m.Missing(); err != nil && !asJSON {
		a.note("note     %v", err)
	}
	t := time.NewTicker(every)
	defer t.Stop()
	before := m.Read()
	for {
		select {
		case <-ctx.Done():
			return nil // that is how one stops watching
		case <-t.C:
		}
		s := m.Read()
		if asJSON {
			if err := a.out.jsonLine(s); err != nil {
				return err
			}
		} else {
			a.printSample(before, s)
		}
		before = s
	}
}

// printSample prints a line for the process, or for each GPU.
func (a *app) printSample(before, s telemetry.Sample) {
	at := s.Time.Format(time.TimeOnly)
	if len(s.GPUs) == 0 {
		load := (s.Process.CPUSeconds - before.Process.CPUSeconds) / s.Time.Sub(before.Time).Seconds()
		a.out.printf("%s  this process: %s, %.0f %% of a core\n", at, bytesize.Binary(s.Process.ResidentBytes), 100*load)
		return
	}
	for _, g := range s.GPUs {
		var parts []string
		add := func(ok bool, format string, args ...any) {
			if ok {
				parts = append(parts, fmt.Sprintf(format, args...))
			}
		}
		add(g.MemoryUsed != nil && g.MemoryTotal != nil, "%s of %s", size(g.MemoryUsed), size(g.MemoryTotal))
		add(g.Utilization != nil, "%.0f %% busy", 100*value(g.Utilization))
		add(g.PowerWatts != nil, "%.0f W", value(g.PowerWatts))
		add(g.TemperatureC != nil, "%.0f °C", value(g.TemperatureC))
		add(g.SMClockMHz != nil, "%.0f MHz", value(g.SMClockMHz))
		add(len(g.Throttled) > 0, "slowed: %s", strings.Join(g.Throttled, ", "))
		add(len(g.Processes) > 0, "%d processes", len(g.Processes))
		a.out.printf("%s  %d  %s  %s\n", at, g.Index, g.Name, strings.Join(parts, ", "))
	}
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

func size(p *int64) string {
	if p == nil {
		return "?"
	}
	return bytesize.Binary(*p)
}
