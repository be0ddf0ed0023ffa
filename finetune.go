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
	"github.com/lorafuse/lorafuse/train/config"
)

// Data are rows to train on: files, or rows in memory. The zero value has none.
type Data struct {
	files []string
	rows  []byte // JSON Lines
	err   error
}

// Files returns the rows of files: .jsonl, .txt, or .safetensors with token IDs.
func Files(paths ...string) Data { return Data{files: paths} }

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
	Seed         uint64
	// Config holds all other settings, as a YAML file of lorafuse train does. Nil means its
	// defaults, with an adapter on all linear layers.
	Config *config.Config
	// OnStep, if not nil, is called after each step of the optimizer.
	OnStep func(step, steps int, loss float64)
}

// FineTuned is a finished run.
type FineTuned struct {
	Adapter  string // folder, which PEFT loads
	Steps    int
	LastLoss float64
	Duration time.Duration
}

// FineTune trains an adapter for the model in a folder or on the Hub. If ctx ends, it saves a
// checkpoint; the same call with Config.Resume then continues the run, bit for bit.
func FineTune(ctx context.Context, model string, data Data, r Recipe) (*FineTuned, error) {
	if data.err != nil {
		return nil, fmt.Errorf("lorafuse: fine-tune: %w", data.err)
	}
	c := r.config(model)
	var files fs.FS
	c.Data.Train = data.files
	if data.rows != nil {
		c.Data.Train, files = config.Strings{rowsFile}, memory(data.rows)
	}
	begun := time.Now()
	run, err := train.NewFrom(ctx, c, files, train.Observer{Step: func(s train.Report) {
		if r.OnStep != nil {
			r.OnStep(s.Step, s.Steps, s.Loss)
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("lorafuse: fine-tune: %w", err)
	}
	defer run.Close()
	s, err := run.Train(ctx)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: fine-tune: %w", err)
	}
	return &FineTuned{Adapter: s.Adapter, Steps: s.Steps, LastLoss: s.LastLoss, Duration: time.Since(begun)}, nil
}

// config returns the configuration of a run.
func (r *Recipe) config(model string) *config.Config {
	c := config.Default()
	c.Adapter.TargetModules.Expr = "all-linear"
	if r.Config != nil {
		*c = *r.Config
	}
	c.Model = model
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
