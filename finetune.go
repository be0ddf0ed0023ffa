package lorafuse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/lorafuse/lorafuse/internal/train"
	_ "github.com/lorafuse/lorafuse/internal/train/task" // the tasks of runs
	"github.com/lorafuse/lorafuse/train/config"
)

// Data holds training data: files, rows in memory, or images. The zero value means the data of
// the Config.
type Data struct {
	files  []string
	rows   []byte // JSON Lines
	images string // folder
	err    error
}

// Files returns the rows of files: .jsonl, .txt, or .safetensors with token IDs.
func Files(paths ...string) Data { return Data{files: paths} }

// Images returns the images of a folder, each with its caption in a .txt file of the same name,
// to fine-tune a diffusion pipeline. They are encoded once, into a cache.
func Images(dir string) Data { return Data{images: dir} }

// Rows returns rows in memory as Data. Each encodes to a JSON object with the keys that a line of a .jsonl
// file may have: text; prompt and completion; messages; anchor and positive; text and label;
// prompt, chosen and rejected.
func Rows[T any](rows []T) Data {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for i, row := range rows {
		if err := e.Encode(row); err != nil {
			return Data{err: fmt.Errorf("row %d: %w", i, err)}
		}
	}
	return Data{rows: b.Bytes()}
}

// rowsFile names rows in memory in errors.
const rowsFile = "rows.jsonl"

// Recipe configures [FineTune]. Fields that are zero keep the value of Config.
type Recipe struct {
	// OutputDir receives the adapter, checkpoints and metrics.
	OutputDir string
	Rank      int     // of the adapter
	Alpha     float64 // the adapter is scaled by Alpha/Rank
	// Steps of the optimizer. Zero means Epochs.
	Steps        int
	Epochs       float64 // passes over the data
	BatchSize    int     // rows per micro-batch
	LearningRate float64
	MaxLength    int // of a row, in tokens
	Resolution   int // images are scaled to about as many pixels as a square of this side has. Zero means 1024.
	Seed         uint64
	// Config holds all other settings, as a YAML file of lorafuse train does. Nil means its
	// defaults, with an adapter on all linear layers.
	Config *config.Config
	// OnStep, if not nil, is called after each step of the optimizer.
	OnStep func(Step)
	// Log, if not nil, receives lines about the run: its memory plan, losses and evaluations.
	Log io.Writer
}

// Step is a step of the optimizer.
type Step struct {
	Step, Steps     int // done, in total
	Loss            float64
	TokensPerSecond float64  // images per second of a diffusion model
	EvalLoss        *float64 // nil if no evaluation followed
}

// ReadRecipe returns the recipe in a YAML file of lorafuse train. Each of sets changes a value,
// such as "adapter.r=8".
func ReadRecipe(file string, sets ...string) (Recipe, error) {
	c, err := config.Load(file, sets...)
	if err != nil {
		return Recipe{}, fmt.Errorf("lorafuse: %w", err)
	}
	return Recipe{OutputDir: c.OutputDir, Config: c}, nil
}

// FineTuned is a finished run.
type FineTuned struct {
	Adapter  string // folder, which PEFT loads
	Plot     string // file with the curve of the loss
	Steps    int
	LastLoss float64
	// FirstEval and LastEval are the losses of the first and the last evaluation. Nil means that
	// the run had no evaluation data.
	FirstEval, LastEval *float64
	Duration            time.Duration
}

// FineTune trains an adapter for the model in a folder or on the Hub; an empty model means that
// of r.Config. If ctx ends, it saves a checkpoint; the same call with Config.Resume then
// continues the run, bit for bit.
func FineTune(ctx context.Context, model string, data Data, r Recipe) (*FineTuned, error) {
	f, err := fineTune(ctx, model, data, r)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: fine-tune: %w", err)
	}
	return f, nil
}

func fineTune(ctx context.Context, model string, data Data, r Recipe) (*FineTuned, error) {
	if data.err != nil {
		return nil, data.err
	}
	begun := time.Now()
	c := r.config(model)
	var from train.Data
	switch {
	case data.rows != nil:
		c.Data.Train, from.Files = config.Strings{rowsFile}, memory(data.rows)
	case data.files != nil:
		c.Data.Train = data.files
	case data.images != "":
		c.Task, c.Diffusion.Images = config.TaskDiffusion, data.images
		from.Encode, from.Side = true, r.Resolution
	}
	watch := r.observer()
	for _, key := range c.Idle() {
		watch.Note(key + ": has no effect here")
	}
	run, err := train.NewFrom(ctx, c, from, watch)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	s, err := run.Train(ctx)
	if err != nil {
		return nil, err
	}
	return &FineTuned{s.Adapter, s.Plot, s.Steps, s.LastLoss, s.FirstEval, s.LastEval, time.Since(begun)}, nil
}

// logLines is the number of lines with losses that Log receives of a run.
const logLines = 15

// observer calls OnStep and writes to Log.
func (r *Recipe) observer() (o train.Observer) {
	log := r.Log
	if log == nil {
		log = io.Discard
	}
	o.Note = func(line string) { fmt.Fprintln(log, line) }
	sum, steps := 0.0, 0
	o.Step = func(s train.Report) {
		if r.OnStep != nil {
			r.OnStep(Step{s.Step, s.Steps, s.Loss, s.TokensPerSecond, s.Eval})
		}
		sum, steps = sum+s.Loss, steps+1
		if s.Step%max(1, s.Steps/logLines) == 0 {
			fmt.Fprintf(log, "step     %3d of %d, loss %.3f, %.0f %s/s\n", s.Step, s.Steps, sum/float64(steps), s.TokensPerSecond, s.Unit)
			sum, steps = 0, 0
		}
		if s.Eval != nil {
			fmt.Fprintf(log, "eval     loss %.4f after step %d\n", *s.Eval, s.Step)
		}
	}
	return o
}

// config returns the configuration of a run.
func (r *Recipe) config(model string) *config.Config {
	c := config.Default()
	c.Adapter.TargetModules.Expr = "all-linear"
	if r.Config != nil {
		*c = *r.Config
	}
	set(&c.Model, model)
	set(&c.OutputDir, r.OutputDir)
	set(&c.Adapter.R, r.Rank)
	set(&c.Adapter.LoraAlpha, r.Alpha)
	set(&c.Steps, r.Steps)
	set(&c.Epochs, r.Epochs)
	set(&c.BatchSize, r.BatchSize)
	set(&c.LearningRate, r.LearningRate)
	set(&c.Data.MaxLength, r.MaxLength)
	set(&c.Seed, r.Seed)
	return c
}

// set assigns x unless it is zero.
func set[T comparable](to *T, x T) {
	var zero T
	if x != zero {
		*to = x
	}
}

// memory is a file system with one file, of rows.
type memory []byte

// Open implements fs.FS.
func (m memory) Open(name string) (fs.File, error) {
	if name != rowsFile {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memoryFile{bytes.NewReader(m), int64(len(m))}, nil
}

// memoryFile is an open file of memory.
type memoryFile struct {
	io.Reader
	size int64
}

func (f *memoryFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f *memoryFile) Close() error               { return nil }
func (f *memoryFile) Name() string               { return rowsFile }
func (f *memoryFile) Size() int64                { return f.size }
func (f *memoryFile) Mode() fs.FileMode          { return 0o444 }
func (f *memoryFile) ModTime() time.Time         { return time.Time{} }
func (f *memoryFile) IsDir() bool                { return false }
func (f *memoryFile) Sys() any                   { return nil }
