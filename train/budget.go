package train

import (
	"fmt"
	"sort"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// Fit is how the steps of a run are computed.
type Fit struct {
	Layers     int   `json:"layers"`
	Recomputed int   `json:"recomputed_layers"`           // of them, the first ones, in backward
	Rows       int   `json:"micro_batch_rows"`            // of one forward and backward pass
	Cut        int   `json:"micro_batches_cut"`           // parts that each of the configuration's is cut into
	Budget     int64 `json:"memory_budget_bytes"`         // 0: none was given
	Resident   int64 `json:"memory_plan_resident_bytes"`  // what it takes with the weights and the process
	Total      int64 `json:"memory_plan_allocated_bytes"` // what it takes beside them
}

// String says how, in words.
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

// candidate is a way to compute the steps.
type candidate struct {
	Fit
	options  EngineOptions
	memory   Memory
	material material
}

// budget looks for the fastest plan in so many bytes.
//
// Recomputing costs up to one more forward pass and changes no bit of the
// result, so it comes first, with the fewest layers that do. Those are the
// first layers: their values would be kept longest, and when they are
// recomputed those of the others are gone. A micro-batch that is cut into
// several adds up the same gradients in another order, so that a last bit may
// differ; it comes when recomputing all layers is not enough.
type budget struct {
	run     *Run
	planner *Planner
	bytes   int64
	options EngineOptions // but for the sizes
	layers  int
	pack    backend.Pack // of what is left
}

func (r *Run) newBudget(p *Planner, o EngineOptions) (*budget, error) {
	layers, err := p.Layers(o.Task)
	b := &budget{r, p, int64(r.cfg.Memory), o, layers, o.Pack}
	if o.Pack == backend.PackAuto {
		b.options.Pack = backend.PackNever
	}
	return b, err
}

// packed gives what is left over to packed copies, where they are made as far as
// there is room.
func (b *budget) packed(o EngineOptions, m Memory) EngineOptions {
	o.Pack = b.pack
	if b.pack == backend.PackAuto {
		if o.PackLimit = b.bytes - m.Resident(); o.PackLimit == 0 {
			o.Pack = backend.PackNever
		}
	}
	return o
}

// find gives the plan. Errors: backend.ErrOutOfMemory, with what is missing.
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

// cuts are the numbers of parts that micro-batches may be cut into: each a row
// longer, until the parts have one row.
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

// whole says why micro-batches cannot be cut without changing what is learned.
func (b *budget) whole() string {
	for _, t := range b.planner.state.Placement.Targets {
		if t.Dropout > 0 {
			return "lora_dropout draws a mask for each"
		}
	}
	if why := b.options.task().Whole(); why != "" {
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

// cut is a candidate with micro-batches that are cut; its layers are not decided.
func (b *budget) cut(n int) (_ *candidate, err error) {
	c := &candidate{options: b.options}
	c.Layers, c.Cut, c.Rows, c.Budget = b.layers, n, b.run.cfg.BatchSize/n, b.bytes
	if c.material, err = b.run.material.cut(n); err != nil {
		return nil, err
	}
	if c.options.Task, err = c.material.task(); err != nil {
		return nil, err
	}
	train, eval := c.material.rows()
	c.options.MaxTokens = train.MaxTokens()
	if eval != nil {
		c.options.MaxEvalTokens = eval.MaxTokens()
	}
	return c, nil
}

// fewest recomputes as few layers as fit, or all of them where none do.
func (b *budget) fewest(c *candidate) (*candidate, error) {
	least := 0
	if b.options.Checkpointing { // the configuration wants it
		least = b.layers
	}
	plans := map[int]*candidate{}
	var fail error
	fits := func(n int) bool {
		p := *c
		p.Recomputed = n
		p.options.Checkpointing, p.options.Recomputed = n > 0, n
		p.memory, fail = b.planner.Memory(p.options)
		p.Resident, p.Total = p.memory.Resident(), p.memory.Total()
		plans[n] = &p
		return fail != nil || p.Resident <= b.bytes
	}
	n := b.layers
	if fits(n) && least < n {
		n = least + sort.Search(n-least, func(i int) bool { return fits(least + i) })
	}
	if fail != nil {
		return nil, fail
	}
	return plans[n], nil
}

// refuse says by how much the smallest plan does not fit, and what would.
func (b *budget) refuse(c *candidate) error {
	text := fmt.Sprintf("the smallest plan (%v, %d rows at a time) takes %s: %v; that is %s more than memory: %s",
		c.Fit, c.Rows, bytesize.Binary(c.Resident), c.memory, bytesize.Binary(c.Resident-b.bytes), bytesize.Binary(b.bytes))
	if why := b.whole(); why != "" && b.run.cfg.BatchSize > 1 {
		text += fmt.Sprintf("; micro-batches of %d rows were not cut, since %s: a smaller batch_size takes less", b.run.cfg.BatchSize, why)
	}
	if smaller := c.options.task().Smaller(); smaller != "" {
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
