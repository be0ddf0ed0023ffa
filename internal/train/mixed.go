package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/tensor"
)

// mixed computes the gradients of micro-batches of several jobs in one pass. Each row
// uses the adapter of its job. The results of a job's rows depend only on these rows,
// so their sums are bit-identical to the sums of the job's own program.
type mixed struct {
	slot    *engine.Slot
	draft   *engine.Draft
	program *engine.Program
	most    int // tokens

	taken    []*job // jobs with micro-batches in the pass
	numbers  map[*job]int32
	batch    data.Batch
	adapters []int32
	keys     []uint32 // of dropout, for each row
	losses   []float32
}

// Array implements nn.Arrays.
func (p *mixed) Array(name string) ([]byte, bool) {
	if name == nn.RandomKey {
		return tensor.BytesOf(p.keys), true
	}
	return p.batch.Array(name)
}

// load plans and loads the programs of all jobs.
func (j *Jobs) load(ctx context.Context, o Observer) error {
	var company []*job
	var engines []*Engine
	for _, x := range j.jobs {
		var err error
		if x.engine, err = x.planner.engine(x.opts); err != nil {
			return inJob(x.name, err)
		}
		x.engine.company = &x.company
		engines = append(engines, x.engine)
		if why := j.apart(x); why != "" {
			if j.group != nil && len(j.jobs) == 1 {
				continue
			}
			o.note("note     the job %s takes turns with the others: %s", x.name, why)
			continue
		}
		company = append(company, x)
	}
	if len(company) > 1 {
		var err error
		if j.mixed, err = j.mix(company); err != nil {
			return err
		}
	}
	if err := load(ctx, engines, j.mixed); err != nil {
		return err
	}
	j.memory = engines[0].memory
	return nil
}

// apart returns the reason why a job would not get identical bits in a shared pass, or
// nothing.
func (j *Jobs) apart(x *job) string {
	switch {
	case len(j.jobs) == 1:
		return "there are none"
	case x.engine.plan.micro.ByLength():
		return "rotary tables depend on the longest text of a batch"
	case x.engine.plan.reference != nil:
		return fmt.Sprintf("its task is %s", x.cfg.Task)
	case x.engine.plan.micro.Reads(nn.StepLabels):
		return "routers are balanced over a batch"
	}
	return trainer.Apart(j.base.host, x.planner.state.Placement)
}

// mix plans the pass of jobs.
func (j *Jobs) mix(company []*job) (_ *mixed, err error) {
	m := &mixed{numbers: map[*job]int32{}}
	var slots []*engine.Slot
	longest, all, recompute := 0, 0, false
	for i, x := range company {
		slots = append(slots, x.planner.slot)
		m.numbers[x] = int32(i)
		longest, all, recompute = max(longest, x.opts.MaxTokens), all+x.opts.MaxTokens, recompute || x.opts.Checkpointing
		x.company.fused = true
	}
	m.slot, m.most = j.base.host.NewMultiAdapter(slots...), max(longest, min(all, trainer.MultiAdapterTokens))
	m.losses = make([]float32, m.most)
	shared := trainer.MultiAdapterPass(m.most)
	shared.Gradients = ir.GradOptions{Checkpoint: recompute}
	m.draft, err = j.base.host.Plan(m.slot, shared.Spec(j.model))
	if err != nil {
		return nil, fmt.Errorf("train: a pass of several jobs: %w", err)
	}
	return m, nil
}

// take fills a pass with micro-batches of jobs, and returns the remaining jobs.
func (p *mixed) take(jobs []*job) (left []*job) {
	p.adapters, p.keys = p.adapters[:0], p.keys[:0]
	p.batch.Reset()
	p.taken, left = trainer.Fill(jobs, p.most, func(x *job) int { return len(x.company.batch.Tokens()) }, nil)
	for _, x := range p.taken {
		n := len(x.company.batch.Tokens())
		p.batch.AddBatch(x.company.batch)
		p.adapters = append(p.adapters, slices.Repeat([]int32{p.numbers[x]}, n)...)
		for row := range n {
			p.keys = append(p.keys, uint32(x.opts.Seed), uint32(x.opts.Seed>>32), x.company.draw, uint32(row))
		}
	}
	p.batch.SetInts(nn.Adapters, p.adapters)
	return left
}

// run computes the pass, and adds up the losses of each job.
func (p *mixed) run(ctx context.Context) error {
	err := p.program.Run(ctx, p.slot, p, p.batch.Longest())
	losses := p.losses[:len(p.adapters)]
	if err == nil {
		err = p.program.Read(ctx, trainer.RowLosses, losses)
	}
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	for _, x := range p.taken {
		sum, n := 0.0, len(x.company.batch.Tokens())
		for _, loss := range losses[:n] {
			sum += float64(loss)
		}
		x.company.loss += float32(sum)
		losses = losses[n:]
	}
	return nil
}
