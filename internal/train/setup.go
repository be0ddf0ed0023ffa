package train

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// Observer receives the events of a run. Its fields may be nil.
type Observer struct {
	// Note receives messages for the user: the memory plan, inputs that were read,
	// files that were saved.
	Note func(text string)
	// Load is called with the progress, in bytes, of downloads, of tokenising, and of
	// computations on rows before the first step.
	Load func(task string, done, total int64)
	// Step gets each finished optimizer step.
	Step func(Report)
	// Save is called after each step except the last, and returns whether to save a
	// checkpoint even if save_steps does not require one.
	Save func(step int) bool
	// Saved is called with each checkpoint of a step when it is complete on disk. Later
	// checkpoints may remove it (save_limit). See [CheckpointAdapter].
	Saved func(step int, dir string)
	// Figures returns additional metrics to record after a step.
	Figures func() []events.Scalar
	// Profile gets the cost of every launch of the device.
	Profile *backend.Profile
}

// Report is one finished step.
type Report struct {
	Step, Steps     int // done, of all
	Loss            float64
	GradNorm        float64
	LearningRate    float64
	TokensPerSecond float64
	FlopsPerSecond  float64         // of steps that are recorded, else 0
	MFU             float64         // share of these in the most that the device can do by its data sheet; 0 if that is not known
	Tokens          int64           // trained on by this process
	Unit            string          // of Tokens and TokensPerSecond: tokens, or images
	Eval            *float64        // loss, if the step ended with an evaluation
	Accuracy        *float64        // there, the share of correctly predicted tokens, of correctly classified rows, or of rows that prefer the chosen answer; nil if not applicable
	Metrics         []events.Scalar // of the step, which its loss defines
}

func (o Observer) note(format string, args ...any) {
	if o.Note != nil {
		o.Note(fmt.Sprintf(format, args...))
	}
}

// Run is a training run, ready to go.
type Run struct {
	Setup
	lock   *fsatomic.FileLock // of the output folder, nil for a dry run
	others []*Run             // of rank 0: the other ranks of this process
	sum    *dist.Sum          // of the gradients of a step, if ranks share it
	vector []float32          // of a micro-batch of this rank, and then of the step

	precision    backend.Precision // of the device
	engine       *Engine
	material     *Material
	train, eval  Rows // of the material; eval may be nil
	fitted       Fit
	steps        int
	progress     progress
	resumed      string
	settings     settings
	trainableNum int
}

// New reads everything that the configuration names, plans the memory and compiles the
// step, on each of the devices that the key devices selects. It writes only the output folder,
// which belongs to the run until Close. Errors:
// ErrRunning if another run uses the folder.
func New(ctx context.Context, c *config.Config, o Observer) (*Run, error) {
	return open(ctx, c, Data{}, o, true)
}

// Data says where a run reads its data. The zero value means the disk, and the cache of images.
type Data struct {
	Files fs.FS // with the files of config.Data, such as rows in memory
	// Encode builds the cache of images before it is read. They are scaled to about
	// Side·Side pixels; zero means the default.
	Encode bool
	Side   int
}

// NewFrom opens a run like [New], with data from elsewhere.
func NewFrom(ctx context.Context, c *config.Config, d Data, o Observer) (*Run, error) {
	return open(ctx, c, d, o, true)
}

// DryRun returns the plan of a run, on its first device. It does everything that New does, but leaves the
// output folder unchanged, and works while another run uses the folder.
func DryRun(ctx context.Context, c *config.Config, o Observer) (Memory, Fit, error) {
	r, err := open(ctx, c, Data{}, o, false)
	if err != nil {
		return Memory{}, Fit{}, err
	}
	defer r.Close()
	return r.Memory(), r.Fit(), nil
}

func open(ctx context.Context, c *config.Config, d Data, o Observer, lock bool) (*Run, error) {
	if err := validate(c); err != nil {
		return nil, err
	}
	indices, err := selected(c)
	if err != nil {
		return nil, err
	}
	if len(indices) > 1 && lock {
		return newOnDevices(ctx, c, indices, d, o)
	}
	r := &Run{Setup: Setup{cfg: c, data: d, observer: o}}
	if len(indices) > 0 {
		r.index = indices[0]
	}
	return r.open(ctx, lock)
}

// validate checks the configuration of a single run.
func validate(c *config.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Jobs.Len() > 0 {
		return fmt.Errorf("train: jobs: %w: found %d, expected a run of its own", ErrOption, c.Jobs.Len())
	}
	return nil
}

func (r *Run) open(ctx context.Context, lock bool) (_ *Run, err error) {
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if err := r.group.Do(ctx, func(ctx context.Context) error { return r.gather(ctx, lock) }); err != nil {
		return nil, err
	}
	ready, err := r.build(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.group.Agree(ctx, nil, r.begin(ctx, ready)); err != nil {
		return nil, err
	}
	r.describe()
	return r, nil
}

// prepared holds the inputs for building the engine of a run.
type prepared struct {
	state   *lora.State
	planner *Planner
	opts    EngineOptions
	moments trainer.Moments // of the checkpoint to resume from, or nil
}

// gather creates the output folder, opens the model and reads the data.
func (r *Run) gather(ctx context.Context, lock bool) error {
	if r.group.Leads() {
		if err := r.makeOutput(lock); err != nil {
			return err
		}
	}
	return r.openTask(ctx)
}

// build builds the engine. It runs exclusively on a shared base.
func (r *Run) build(ctx context.Context) (p prepared, err error) {
	if r.base != nil {
		r.base.host.Lock()
		defer r.base.host.Unlock()
	}
	if p, err = r.prepare(ctx); err != nil {
		return p, err
	}
	if err := r.group.Do(ctx, func(ctx context.Context) (err error) {
		r.engine, err = p.planner.Engine(ctx, p.opts)
		return err
	}); err != nil {
		return p, err
	}
	return p, r.distribute(ctx, p.state)
}

// prepare opens the device, plans the steps and reads the checkpoint to resume from.
func (r *Run) prepare(ctx context.Context) (prepared, error) {
	var p prepared
	err := r.group.Do(ctx, func(context.Context) (err error) {
		p, err = r.inputs()
		return err
	})
	if err != nil {
		return p, err
	}
	if p.opts, err = r.sharedFit(ctx, p.planner, p.opts); err != nil {
		return p, err
	}
	p.moments, err = r.sharedResume(ctx, p.state)
	return p, err
}

// inputs opens the device and makes the adapter and the planner. For a run on a base it uses the
// model and the device of the base.
func (r *Run) inputs() (p prepared, err error) {
	c, o := r.cfg, r.observer
	if _, err := r.OpenDevice(); err != nil {
		return p, err
	}
	if c.Backend == backend.Auto && r.base == nil {
		if err := backend.SkipReason(r.dev.Info().Backend); err != nil {
			o.note("computing on %s: %v", r.dev.Info().Backend, err)
		}
	}
	if p.state, err = r.adapter(); err != nil {
		return p, err
	}
	r.precision = c.Precision.On(r.dev.Info().Backend)
	if err := r.settle(p.state); err != nil {
		return p, err
	}
	p.opts = EngineOptions{
		Loss: r.material.Loss, MaxTokens: r.train.MaxTokens(), Optimizer: trainer.Optimizer(c.Optimizer),
		Adam:          trainer.Adam{Beta1: c.Betas[0], Beta2: c.Betas[1], Eps: c.Eps, WeightDecay: c.WeightDecay, MaxGradNorm: c.MaxGradNorm},
		Checkpointing: c.ActivationCheckpointing, Seed: c.Seed, MemoryLimit: int64(c.MemoryLimit), Pack: c.Pack,
		Shared: r.group != nil,
	}.withDefaults()
	if err := r.checkBest(p.opts.Loss); err != nil {
		return p, err
	}
	if r.eval != nil {
		p.opts.MaxEvalTokens = r.eval.MaxTokens()
	}
	if r.base != nil {
		p.planner, err = r.base.planner(p.state)
	} else {
		p.planner, err = NewPlanner(r.dev, r.model, p.state)
	}
	if err != nil {
		return p, err
	}
	if reserve := r.material.Reserve; reserve != nil {
		p.opts.Samples, err = reserve(p.planner.host, p.planner.slot)
	}
	return p, err
}

// begin loads the state to resume from into the engine.
func (r *Run) begin(ctx context.Context, p prepared) error {
	r.fitted.Layers, r.fitted.Resident, r.fitted.Total = r.engine.plan.micro.Segments, r.engine.Memory().Resident(), r.engine.Memory().Total()
	if p.opts.Checkpointing && p.opts.Recomputed == 0 {
		r.fitted.Recomputed = r.fitted.Layers
	}
	if p.moments == nil {
		return nil
	}
	if err := r.engine.SetMoments(ctx, p.moments); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return nil
}

// fit chooses the plan of the steps: the one in the configuration, or, with a memory
// budget, the fastest plan that fits.
func (r *Run) fit(p *Planner, o EngineOptions) (EngineOptions, error) {
	r.fitted = Fit{Cut: 1, Rows: r.cfg.BatchSize, Budget: int64(r.cfg.Memory)}
	if r.cfg.Memory == 0 {
		return o, nil
	}
	b, err := r.newBudget(p, o)
	if err != nil {
		return o, err
	}
	c, err := b.find()
	if err != nil {
		return o, err
	}
	return r.use(b, c), nil
}

// use makes a candidate the plan of the run.
func (r *Run) use(b *budget, c *candidate) EngineOptions {
	r.fitted = c.Fit
	r.setMaterial(c.material)
	if c.Cut > 1 { // a last bit depends on it
		r.settings["micro-batches"] = fmt.Sprintf("cut in %d to fit memory", c.Cut)
	}
	return b.packed(c.options, c.memory)
}

// describe reports the run before training begins.
func (r *Run) describe() {
	r.describeModel()
	r.describeOwn()
	if r.fitted.Budget > 0 {
		r.observer.note("plan     %v: %s of memory: %s", r.fitted, bytesize.Binary(r.fitted.Resident), bytesize.Binary(r.fitted.Budget))
		if r.fitted.Cut > 1 {
			r.observer.note("note     gradients of the %d parts of a micro-batch add up to the same but for rounding", r.fitted.Cut)
		}
	}
	r.describeMemory(r.engine.Memory())
	r.describeGroup()
	if r.resumed != "" {
		r.observer.note("resume   %s, step %d of %d", r.resumed, r.progress.Step, r.steps)
	}
}

// describeModel reports the model and the device.
func (r *Run) describeModel() {
	info := r.dev.Info()
	r.observer.note("model    %s, %s, %.1fM parameters", r.cfg.Model, r.model.Config.Architecture, float64(r.model.Parameters())/1e6)
	for _, line := range r.model.Quantization().Lines() {
		r.observer.note("%s", line)
	}
	for _, line := range r.material.ModelNotes {
		r.Note("%s", line)
	}
	r.observer.note("backend  %s (%s), %v", info.Backend, info.Detail, r.precision)
}

// describeOwn reports the trained parameters and the rows.
func (r *Run) describeOwn() {
	r.observer.note("adapter  %d tensors, %.2fM trained parameters", len(r.engine.Trained()), float64(r.trainableNum)/1e6)
	if idle := r.engine.idle(); len(idle) > 0 {
		shown, more := idle[:min(len(idle), 3)], ""
		if n := len(idle) - len(shown); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		r.observer.note("note     no effect on the loss, saved as they are: %s%s", strings.Join(shown, ", "), more)
	}
	for _, line := range r.material.Notes {
		r.Note("%s", line)
	}
	r.observer.note("data     %v", r.train)
	if r.eval != nil {
		r.observer.note("eval     %v", r.eval)
	}
}

func (r *Run) describeMemory(m Memory) {
	r.observer.note("memory   %v", m)
	if load := r.load(); load != nil {
		r.observer.note("weights  %v", load)
	}
}

// load returns statistics of the upload of the weights, or nil if they are used in
// place.
func (r *Run) load() *backend.LoadStats {
	d, ok := r.dev.(backend.Loader)
	if !ok {
		return nil
	}
	if s := d.Loaded(); s.Bytes > 0 {
		return &s
	}
	return nil
}

// Fit returns the memory plan that the run chose.
func (r *Run) Fit() Fit { return r.fitted }

// Memory returns the memory of that plan.
func (r *Run) Memory() Memory { return r.engine.Memory() }

// Device returns the device of the run.
func (r *Run) Device() backend.Info { return r.dev.Info() }
