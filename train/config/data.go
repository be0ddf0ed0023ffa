package config

import (
	"math"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
)

// DataOptions returns the settings of data.Load from the file; the caller adds the tokenizer, the chat template and
// the vocabulary size.
func (c *Config) DataOptions() data.Options {
	o := data.Options{
		Format:            c.Data.Format,
		TrainOn:           c.Data.TrainOn,
		MaxLength:         c.Data.MaxLength,
		OnTooLong:         c.Data.OnTooLong,
		DocumentSeparator: c.Data.DocumentSeparator,
		Columns:           c.Data.Columns.mapped(),
		IgnoreColumns:     c.Data.IgnoreColumns,
	}
	if rows := c.Task.definition().rows; rows != nil {
		rows(c, &o)
	}
	return o
}

// DeviceOptions returns the options to open the device with.
func (c *Config) DeviceOptions() backend.Options {
	return backend.Options{Threads: c.Threads, Precision: c.Precision, Load: c.Load, BatchInvariant: c.BatchInvariant}
}

// LoaderConfig returns the options that turn training rows into batches.
func (c *Config) LoaderConfig() data.LoaderConfig {
	return data.LoaderConfig{
		BatchSize:       c.BatchSize,
		Accumulation:    c.GradientAccumulationSteps,
		Seed:            c.Seed,
		Shuffle:         c.Data.Shuffle,
		DropLast:        c.Data.DropLast,
		LengthBucketing: c.Data.LengthBucketing,
		Packing:         c.Data.Packing,
		MaxLength:       c.Data.MaxLength,
		Mix:             c.Data.Mix,
	}
}

// Evaluates reports whether the run has rows to evaluate on.
func (c *Config) Evaluates() bool { return len(c.Data.Eval) > 0 || c.Data.EvalFraction > 0 }

// EvalRows returns the number of rows of an evaluation batch.
func (c *Config) EvalRows() int {
	if c.EvalBatchSize > 0 {
		return c.EvalBatchSize
	}
	return c.BatchSize
}

// TotalSteps returns the length of a run with stepsPerEpoch steps per epoch: steps if given, else epochs, rounded up.
func (c *Config) TotalSteps(stepsPerEpoch int) int {
	if c.Steps > 0 {
		return c.Steps
	}
	return int(math.Ceil(c.Epochs * float64(stepsPerEpoch)))
}
