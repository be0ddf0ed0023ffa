package train

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// passTokens is the maximum number of tokens in a pass over rows of several jobs,
// unless the micro-batch of a single job has more. Larger passes do not reduce the cost
// per token.
const passTokens = 1024

// rowLosses is the result of a pass.
const rowLosses = "losses"

// mixed computes the gradients of micro-batches of several jobs in one pass. Each row
// uses the adapter of its job. The results of a job's rows depend only on these rows,
// so their sums are bit-identical to the sums of the job's own program.
type mixed struct {
	slot    *engine.Slot
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
	for _, x := range j.jobs {
		if err := x.opts.check(); err != nil {
			return inJob(x.name, err)
		}
		var err error
		if x.plan, err = x.planner.plan(x.opts); err != nil {
			return inJob(x.name, err)
		}
		if why := j.apart(x); why != "" {
			o.note("note     the job %s takes turns with the others: %s", x.name, why)
			continue
		}
		company = append(company, x)
	}
	var pass *engine.Draft
	if len(company) > 1 {
		var err error
		if pass, err = j.mix(company); err != nil {
			return err
		}
	}
	var err error
	if j.memory, err = j.measure(pass); err != nil {
		return err
	}
	if err := j.memory.check(j.dev.Info(), j.jobs[0].opts.MemoryLimit); err != nil {
		return err
	}
	return j.loadPrograms(ctx, pass)
}

// apart returns the reason why a job would not get identical bits in a shared pass, or
// nothing.
func (j *Jobs) apart(x *job) string {
	info := j.dev.Info()
	switch {
	case len(j.jobs) == 1:
		return "there are none"
	case !info.BatchInvariant:
		return "batch_invariant is not set"
	case j.model.Quantization().DType.Quantized():
		return "the weights are quantised"
	case x.plan.micro.ByLength():
		return "rotary tables depend on the longest text of a batch"
	case x.plan.reference != nil:
		return fmt.Sprintf("its task is %s", x.cfg.Task)
	case x.plan.micro.Reads(nn.StepLabels):
		return "routers are balanced over a batch"
	}
	return apart(x.planner.state.Placement)
}

// apart returns the part of an adapter whose gradient sums would depend on the other
// rows in a pass, or nothing.
func apart(p *lora.Placement) string {
	for _, t := range p.Targets {
		switch {
		case t.Kind != lora.Linear:
			return fmt.Sprintf("%s is no linear layer", t.Name)
		case t.OutputEmbedding:
			return fmt.Sprintf("%s is the head", t.Name)
		case t.Method() != lora.MethodLoRA:
			return t.Method()
		case t.LoraBias:
			return "lora_bias"
		}
	}
	for _, s := range p.Tensors() {
		if s.Role != lora.RoleA && s.Role != lora.RoleB && s.Role != lora.RoleBase {
			return fmt.Sprintf("%s is trained", strings.TrimPrefix(s.Key, "base_model.model."))
		}
	}
	return ""
}

// mix plans the pass of jobs.
func (j *Jobs) mix(company []*job) (*engine.Draft, error) {
	m := &mixed{numbers: map[*job]int32{}}
	var slots []*engine.Slot
	longest, all, recompute := 0, 0, false
	for i, x := range company {
		slots = append(slots, x.planner.slot)
		m.numbers[x] = int32(i)
		longest, all, recompute = max(longest, x.opts.MaxTokens), all+x.opts.MaxTokens, recompute || x.opts.Checkpointing
		x.company.fused = true
	}
	m.slot, m.most = j.base.host.NewMix(slots...), max(longest, min(all, passTokens))
	j.mixed = m
	shared := trainer.Pass{Name: "train.jobs", Bounds: map[string]int{nn.Tokens: m.most}, RowKeys: true, Emit: emitRows}
	draft, err := j.base.host.Plan(m.slot, shared.Spec(j.model, ir.GradOptions{Checkpoint: recompute}))
	if err != nil {
		return nil, fmt.Errorf("train: a pass of several jobs: %w", err)
	}
	return draft, nil
}

// emitRows emits the loss of each row and the gradients of all adapters.
func emitRows(e *trainer.Emitter) {
	losses := e.Out.Head.RowLosses(e.Input(nn.Labels, tensor.I32, e.Axis(nn.Tokens)))
	e.Result(rowLosses, losses)
	e.Backward(losses.Sum(0), e.Trained())
}

// measure returns the memory plan of all jobs.
func (j *Jobs) measure(pass *engine.Draft) (Memory, error) {
	m := j.jobs[len(j.jobs)-1].planner.common() // planned last, with the data of all jobs in the process
	var drafts []*engine.Draft
	for _, x := range j.jobs {
		m.add(x.plan, x.drafts(), x.opts.Optimizer)
		drafts = append(drafts, x.drafts()...)
	}
	if pass != nil {
		m.Activations = max(m.Activations, int64(pass.Program.Arena))
		drafts = append(drafts, pass)
	}
	if err := m.need(j.base.host, drafts); err != nil {
		return m, err
	}
	var err error
	o := j.jobs[0].opts
	m.Packed, err = j.base.host.Pack(o.Pack, o.PackLimit, drafts...)
	return m, err
}

// drafts returns the programs that the job does not share.
func (x *job) drafts() []*engine.Draft {
	all := x.plan.drafts()
	if x.company.fused {
		return all[1:] // except micro-batches
	}
	return all
}

// loadPrograms compiles the programs of all jobs, in one arena, and makes the engines.
func (j *Jobs) loadPrograms(ctx context.Context, pass *engine.Draft) error {
	var all []engine.Placed
	if pass != nil {
		all = append(all, engine.Placed{Slot: j.mixed.slot, Draft: pass})
	}
	for _, x := range j.jobs {
		all = append(all, x.planner.placed(x.drafts(), x.plan.reference)...)
	}
	programs, err := j.base.host.LoadAll(ctx, nil, all...)
	if err != nil {
		return err
	}
	if pass != nil {
		j.mixed.program, j.mixed.losses = programs[0], make([]float32, j.mixed.most)
		programs = programs[1:]
	}
	for _, x := range j.jobs {
		e, own := x.planner.engine(x.opts, x.plan), x.plan
		e.memory, e.company = j.memory, &x.company
		if x.company.fused {
			e.program, own.micro = j.mixed.program, nil
		}
		n := len(own.drafts())
		e.use(own, programs[:n])
		programs, x.engine = programs[n:], e
	}
	return nil
}

// take fills a pass with micro-batches of jobs, and returns the remaining jobs.
func (p *mixed) take(jobs []*job) (left []*job) {
	p.taken, p.adapters, p.keys = p.taken[:0], p.adapters[:0], p.keys[:0]
	p.batch.Reset()
	for _, x := range jobs {
		n := len(x.company.batch.Tokens())
		if len(p.adapters)+n > p.most {
			left = append(left, x)
			continue
		}
		p.taken = append(p.taken, x)
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
		err = p.program.Read(ctx, rowLosses, losses)
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
