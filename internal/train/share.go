package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/train/config"
)

// ErrElsewhere is wrapped by the error of a run that rank 0 reports.
var ErrElsewhere = ranks.ErrElsewhere

// timeoutOf returns how long ranks wait for one another.
func timeoutOf(c *config.Config) time.Duration { return time.Duration(c.DistributedTimeout) }

// NewRank opens the part of one rank in a run that the ranks of a World share. Rank r computes
// micro-batches r, r + size, … of each step, and every rank updates its copy of the adapter by
// the same bytes. Adapter, checkpoints and records equal those of a run alone. Rank 0
// writes the output and reports; errors of other ranks that it reports wrap ErrElsewhere. All
// ranks must have the same configuration except paths, devices and threads, which by default
// are a share of the cores of the host. A World of one rank, or nil, is a run alone. Errors: dist.ErrLost.
func NewRank(ctx context.Context, w dist.World, c *config.Config, o Observer) (*Run, error) {
	if w == nil || w.Size() == 1 {
		return New(ctx, c, o)
	}
	if err := validate(c); err != nil {
		return nil, err
	}
	g, err := ranks.New(ctx, w, "train", timeoutOf(c))
	if err != nil {
		return nil, err
	}
	c, note := withThreads(c, w)
	if note != "" {
		o.note("note     %s", note)
	}
	r := &Run{Setup: Setup{cfg: c, observer: o, group: g}}
	r.index, err = deviceOf(w, c)
	if err = g.Agree(ctx, nil, err); err != nil {
		return nil, err
	}
	return r.open(ctx, g.Leads())
}

// withThreads returns a configuration whose threads are a share of the cores of the host, unless
// it gives them.
func withThreads(c *config.Config, w dist.World) (_ *config.Config, note string) {
	own := *c
	if own.Threads == 0 {
		own.Threads, note = dist.Threads(w.LocalSize())
	}
	return &own, note
}

// Ready prepares a run of the ranks of a World, such as by reading the configuration, and waits
// until all ranks have. It fails if one of them does. The ranks call it before NewRank; work may be
// nil. A nil World is a run alone.
func Ready(ctx context.Context, w dist.World, work func() error) error {
	if work == nil {
		work = func() error { return nil }
	}
	if w == nil {
		return work()
	}
	g, lost := ranks.New(ctx, w, "train", timeoutOf(config.Default()))
	if lost != nil {
		return lost
	}
	return g.Do(ctx, func(context.Context) error { return work() })
}

// sharedGradients computes the gradients of this rank's micro-batches, and adds the gradients of
// all ranks in the order of the micro-batches. A round, one micro-batch of each rank, is exchanged while the next is computed.
func (l *loop) sharedGradients(ctx context.Context, step int) (flops int, err error) {
	g := l.group
	g.Place = fmt.Sprintf("step %d", step+1)
	rank, size, micros := g.Rank(), g.Size(), l.train.Micros(step)
	var told error // by the exchange in progress
	for first := 0; first < micros; first += size {
		count := min(size, micros-first)
		computes, err := rank < count, ctx.Err()
		if computes && err == nil {
			var n int
			n, err = l.accumulate(ctx, step, first+rank)
			flops += n
		}
		if err := cmp.Or(g.Finish(ctx, l.rescue), told); err != nil {
			return flops, err
		}
		var vector []float32
		if computes && err == nil {
			vector = l.vector
			err = l.engine.Take(ctx, vector)
		}
		g.Start(ctx, func(ctx context.Context) (fault error) {
			if told, fault = g.Tell(ctx, err); told != nil || fault != nil {
				return fault
			}
			return l.sum.Add(ctx, vector, count)
		})
	}
	if err := cmp.Or(g.Finish(ctx, l.rescue), told); err != nil {
		return flops, err
	}
	if err := g.Exchange(ctx, l.rescue, func(ctx context.Context) error { return l.sum.Gather(ctx, l.vector) }); err != nil {
		return flops, err
	}
	return flops, l.engine.Put(context.WithoutCancel(ctx), l.vector)
}

// rescue saves the last complete step while an exchange does not end.
func (l *loop) rescue() {
	if l.ahead {
		if err := l.save(); err != nil {
			l.observer.note("note     %v", err)
		}
	}
	if who := l.group.Waiting(); who != "" {
		l.observer.note("waiting  for %s of step %d", who, l.progress.Step+1)
	}
}

// compareAdapters fails if the ranks have different adapters after a step whose checkpoint is
// due. They cannot, unless a machine computes wrong results.
func (l *loop) compareAdapters(ctx context.Context) error {
	every, done := l.cfg.SaveSteps, l.progress.Step
	if l.group == nil || every == 0 || done%every != 0 {
		return nil
	}
	state, err := l.engine.State(context.WithoutCancel(ctx))
	if err := l.group.Agree(ctx, l.rescue, err); err != nil {
		return err
	}
	return l.group.Same(ctx, l.rescue, map[string]string{fmt.Sprintf("the adapter after step %d", done): HashOf(state)})
}

// HashOf identifies the values of an adapter.
func HashOf(s *lora.State) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		fmt.Fprintf(h, "%q %d\n", key, len(s.Values[key]))
		h.Write(tensor.BytesOf(s.Values[key]))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// Rank returns the number of this rank among the ranks that share the run; 0 alone.
func (s *Setup) Rank() int { return s.group.Rank() }

// Ranks returns the number of ranks that share the run; 1 alone.
func (s *Setup) Ranks() int { return s.group.Size() }

// Exchange returns the numbers of all ranks, in their order, or the error of any. All ranks give
// the same number of them.
func (s *Setup) Exchange(ctx context.Context, own []float32, err error) ([][]float32, error) {
	if s.group == nil {
		return [][]float32{own}, err
	}
	wide := make([]float64, len(own))
	for i, x := range own {
		wide[i] = float64(x)
	}
	all, err := s.group.Round(ctx, nil, wide, err)
	narrow := make([][]float32, len(all))
	for rank, numbers := range all {
		for _, x := range numbers {
			narrow[rank] = append(narrow[rank], float32(x))
		}
	}
	return narrow, err
}

// distribute prepares the engine of a run in a group, after the ranks have compared what their
// results depend on.
func (r *Run) distribute(ctx context.Context, s *lora.State) error {
	g := r.group
	if g == nil {
		return nil
	}
	micros := r.cfg.GradientAccumulationSteps * r.fitted.Cut
	if w := g.Size(); w > micros {
		err := fmt.Errorf("train: gradient_accumulation_steps: found %d, %d micro-batches of a step, for %d ranks, expected at least as many micro-batches as ranks; raise it, with a smaller batch_size for the same step, or start fewer ranks",
			r.cfg.GradientAccumulationSteps, micros, w)
		return g.Told(err)
	}
	manifest := map[string]string{
		"build": Build(), "backend": r.dev.Info().Backend, "device": r.dev.Info().Detail, "adapter": HashOf(s),
		"steps": fmt.Sprint(r.steps), "plan": r.fitted.String(),
	}
	maps.Copy(manifest, r.settings)
	if err := g.Same(ctx, nil, manifest); err != nil {
		return err
	}
	r.vector = make([]float32, r.engine.plan.step.Elements())
	r.sum = dist.NewSum(g.World, len(r.vector))
	return nil
}

// describeGroup reports the ranks.
func (r *Run) describeGroup() {
	g := r.group
	if g == nil {
		return
	}
	micros, w := r.cfg.GradientAccumulationSteps*r.fitted.Cut, g.Size()
	r.observer.note("ranks    %d, on %d hosts", w, len(slices.Compact(slices.Sorted(slices.Values(g.Hosts)))))
	if rounds := (micros + w - 1) / w; rounds*w > micros {
		r.observer.note("note     %d micro-batches of a step on %d ranks: %.0f %% of their time is idle; a multiple of %d in gradient_accumulation_steps has none",
			micros, w, 100*(1-float64(micros)/float64(rounds*w)), w)
	}
}

// Build identifies the program.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return runtime.Version()
	}
	text := info.Main.Version + " " + info.GoVersion
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" && s.Value == "true" || s.Key == "GOARCH" || s.Key == "-tags" {
			text += " " + s.Key + "=" + s.Value
		}
	}
	return text
}

// sharedFit makes the plan of rank 0 that of all ranks.
func (r *Run) sharedFit(ctx context.Context, p *Planner, o EngineOptions) (EngineOptions, error) {
	if r.group == nil {
		return r.fit(p, o)
	}
	options := o
	raw, err := r.group.Share(ctx, func() (raw []byte, err error) {
		if options, err = r.fit(p, o); err != nil {
			return nil, err
		}
		return json.Marshal(r.fitted)
	})
	if err != nil || r.group.Leads() {
		return options, err
	}
	var f Fit
	if err = json.Unmarshal(raw, &f); err == nil {
		options, err = r.adopt(p, o, f)
	}
	return options, err
}

// adopt makes the plan of rank 0 that of this rank.
func (r *Run) adopt(p *Planner, o EngineOptions, f Fit) (EngineOptions, error) {
	r.fitted = f
	if f.Budget == 0 {
		return o, nil
	}
	b, err := r.newBudget(p, o)
	if err != nil {
		return o, err
	}
	c, err := b.cut(f.Cut)
	if err != nil {
		return o, err
	}
	c.options.Checkpointing, c.options.Recomputed = f.Recomputed > 0, f.Recomputed
	c.Fit = f
	if c.memory, err = p.Memory(c.options); err != nil {
		return o, err
	}
	return r.use(b, c), nil
}

// restored is the position that rank 0 has read from a checkpoint.
type restored struct {
	Progress progress                  `json:"progress"`
	Path     string                    `json:"path"` // empty: a new run
	Moments  map[string]momentOfTensor `json:"moments"`
}

type momentOfTensor struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// sharedResume reads the checkpoint on rank 0 and sends it to the other ranks.
func (r *Run) sharedResume(ctx context.Context, s *lora.State) (trainer.Moments, error) {
	g := r.group
	if g == nil {
		return r.resume(s)
	}
	var moments trainer.Moments
	raw, err := g.Share(ctx, func() (raw []byte, err error) {
		if moments, err = r.resume(s); err != nil {
			return nil, err
		}
		x := restored{Progress: r.progress, Path: r.resumed, Moments: map[string]momentOfTensor{}}
		for name, m := range moments {
			x.Moments[name] = momentOfTensor{m.DType.String(), m.Shape}
		}
		return json.Marshal(x)
	})
	if err != nil {
		return nil, err
	}
	var x restored
	if err := json.Unmarshal(raw, &x); err != nil || x.Path == "" {
		return nil, err
	}
	if !g.Leads() {
		r.progress, r.resumed, moments = x.Progress, x.Path, trainer.Moments{}
		for name, m := range x.Moments {
			d, err := tensor.ParseDType(m.DType)
			if err != nil {
				return nil, err
			}
			if moments[name], err = tensor.New(d, m.Shape...); err != nil {
				return nil, err
			}
		}
	}
	parts := make([][]byte, g.Size()) // the ranks know the lengths
	send := func(data []byte) error {
		parts[0] = data
		return g.Exchange(ctx, nil, func(ctx context.Context) error { return g.World.AllGather(ctx, parts) })
	}
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		if err := send(tensor.BytesOf(s.Values[key])); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(moments)) {
		if err := send(moments[name].Data); err != nil {
			return nil, err
		}
	}
	return moments, nil
}
