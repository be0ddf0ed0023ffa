package train

import (
	"fmt"
	"sort"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
)

// Fit is the memory plan chosen for the steps of a run.
type Fit struct {
	Layers     int   `json:"layers"`
	Recomputed int   `json:"recomputed_layers"`           // number of recomputed layers, from the first
	Rows       int   `json:"micro_batch_rows"`            // of one forward and backward pass
	Cut        int   `json:"micro_batches_cut"`           // parts that each of the configuration's is cut into
	Budget     int64 `json:"memory_budget_bytes"`         // 0: no budget
	Resident   int64 `json:"memory_plan_resident_bytes"`  // peak of the plan, including weights and process
	Total      int64 `json:"memory_plan_allocated_bytes"` // allocated by the plan, without in-place weights and the process
}

// String describes the plan in words.
func (p Fit) String() string {
	var how []string
	switch p.Recomputed {
	case 0:
		how = append(how, "no layer recomputed")
	case p.Layers:
		how = append(how, fmt.Sprintf("all %d layers recomputed", p.Layers))
	default:
		how = append(how, fmt.Sprintf("%d of %d layers recomputed", p.Recomputed, p.Layers))
	}
	if p.Cut > 1 {
		how = append(how, fmt.Sprintf("micro-batches cut in %d, of %d rows", p.Cut, p.Rows))
	}
	return strings.Join(how, ", ")
}

// candidate is a possible plan for the steps.
type candidate struct {
	Fit
	options  EngineOptions
	memory   Memory
	material *Material
}

// budget searches for the fastest plan within a memory budget.
//
// Recomputation leaves the result identical, so it is tried first, with the fewest layers that
// suffice (see [trainer.FewestRecomputed]). Cutting a micro-batch adds up the same gradients in
// another order, which may change the last bit; it is tried only if recomputing all layers does
// not suffice.
type budget struct {
	run     *Run
	planner *Planner
	bytes   int64
	options EngineOptions // except the sizes
	layers  int
	pack    backend.Pack // of the remaining memory
}

func (r *Run) newBudget(p *Planner, o EngineOptions) (*budget, error) {
	layers, err := p.Layers(o.Loss)
	b := &budget{r, p, int64(r.cfg.Memory), o, layers, o.Pack}
	if o.Pack == backend.PackAuto {
		b.options.Pack = backend.PackNever
	}
	return b, err
}

// packed assigns the remaining memory to packed copies, on devices that make as many as
// fit.
func (b *budget) packed(o EngineOptions, m Memory) EngineOptions {
	o.Pack = b.pack
	if b.pack == backend.PackAuto {
		if o.PackLimit = b.bytes - m.Resident(); o.PackLimit == 0 {
			o.Pack = backend.PackNever
		}
	}
	return o
}

// find returns the plan. It fails with backend.ErrOutOfMemory and the missing amount.
func (b *budget) find() (*candidate, error) {
	var c *candidate
	for _, cut := range b.cuts() {
		whole, err := b.cut(cut)
		if err != nil {
			return nil, err
		}
		if c, err = b.fewest(whole); err != nil || c.memory.Resident() <= b.bytes {
			return c, err
		}
	}
	return nil, b.refuse(c)
}

// cuts returns the numbers of parts into which micro-batches may be cut: 1 and the
// other divisors of the batch size, in increasing order.
func (b *budget) cuts() []int {
	cuts, rows := []int{1}, b.run.cfg.BatchSize
	if b.whole() != "" {
		return cuts
	}
	for n := 2; n <= rows; n++ {
		if rows%n == 0 {
			cuts = append(cuts, n)
		}
	}
	return cuts
}

// whole returns the reason why cutting micro-batches would change the result, or
// nothing.
func (b *budget) whole() string {
	for _, t := range b.planner.state.Placement.Targets {
		if t.Dropout > 0 {
			return "lora_dropout draws a mask for each"
		}
	}
	if why := b.options.Loss.Whole; why != "" {
		return why
	}
	if m := b.planner.model.Config.Mixture(); m != nil && m.Balance != 0 {
		return "router_aux_loss_coef balances the experts of each"
	}
	if b.run.cfg.Data.LengthBucketing {
		return "data.length_bucketing orders the rows by them"
	}
	return ""
}

// cut returns a candidate with cut micro-batches; its layers are not decided yet.
func (b *budget) cut(n int) (_ *candidate, err error) {
	c := &candidate{options: b.options}
	c.Layers, c.Cut, c.Rows, c.Budget = b.layers, n, b.run.cfg.BatchSize/n, b.bytes
	if c.material, err = b.run.material.Cut(n); err != nil {
		return nil, err
	}
	c.options.Loss = c.material.Loss
	train, eval := c.material.Train, c.material.Eval
	c.options.MaxTokens = train.MaxTokens()
	if eval != nil {
		c.options.MaxEvalTokens = eval.MaxTokens()
	}
	return c, nil
}

// fewest selects the smallest number of recomputed layers that fits, or all layers if
// none fits.
func (b *budget) fewest(c *candidate) (*candidate, error) {
	least := 0
	if b.options.Checkpointing { // the configuration wants it
		least = b.layers
	}
	plans := map[int]*candidate{}
	n, err := trainer.FewestRecomputed(least, b.layers, func(n int) (_ bool, err error) {
		p := *c
		p.Recomputed = n
		p.options.Checkpointing, p.options.Recomputed = n > 0, n
		p.memory, err = b.planner.Memory(p.options)
		p.Resident, p.Total = p.memory.Resident(), p.memory.Total()
		plans[n] = &p
		return p.Resident <= b.bytes, err
	})
	return plans[n], err
}

// refuse returns an error that reports by how much the smallest plan exceeds the
// budget, with advice.
func (b *budget) refuse(c *candidate) error {
	text := fmt.Sprintf("the smallest plan (%v, %d rows at a time) takes %s: %v; that is %s more than memory: %s",
		c.Fit, c.Rows, bytesize.Binary(c.Resident), c.memory, bytesize.Binary(c.Resident-b.bytes), bytesize.Binary(b.bytes))
	if why := b.whole(); why != "" && b.run.cfg.BatchSize > 1 {
		text += fmt.Sprintf("; micro-batches of %d rows were not cut, since %s: a smaller batch_size takes less", b.run.cfg.BatchSize, why)
	}
	if smaller := c.options.Loss.Smaller; smaller != "" {
		return fmt.Errorf("train: %w: %s; %s", backend.ErrOutOfMemory, text, smaller)
	}
	longest := c.options.MaxTokens
	shorter := sort.Search(longest, func(i int) bool { // the first that does not fit
		o := c.options
		o.MaxTokens, o.MaxEvalTokens = i+1, min(o.MaxEvalTokens, i+1)
		m, err := b.planner.Memory(o)
		return err != nil || m.Resident() > b.bytes
	})
	if shorter > 0 {
		text += fmt.Sprintf("; micro-batches of %d tokens would fit (data.max_length) where the longest now has %d", shorter, longest)
	} else {
		text += "; no length of rows would fit"
	}
	return fmt.Errorf("train: %w: %s", backend.ErrOutOfMemory, text)
}
