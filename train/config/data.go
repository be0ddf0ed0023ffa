package config

import (
	"math"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
)

// DataOptions are the settings of data.Load that the file gives; the caller
// adds the tokenizer, the chat template and the size of the vocabulary.
func (c *Config) DataOptions() data.Options {
	o := data.Options{
		Format:            c.Data.Format,
		TrainOn:           c.Data.TrainOn,
		MaxLength:         c.Data.MaxLength,
		OnTooLong:         c.Data.OnTooLong,
		DocumentSeparator: c.Data.DocumentSeparator,
	}
	switch c.Task {
	case Prefer:
		o.Rows = data.PreferenceRows
	case Classify:
		o.Rows, o.Problem, o.Classes = data.LabelledRows, c.Classification.Problem, c.Classification.Labels
	}
	return o
}

// DeviceOptions says how a run opens its device.
func (c *Config) DeviceOptions() backend.Options {
	return backend.Options{Threads: c.Threads, Precision: c.Precision, Load: c.Load, BatchInvariant: c.BatchInvariant}
}

// LoaderConfig says how the training rows become batches.
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
	}
}

// TotalSteps is the length of a run whose epochs have so many steps each:
// steps where given, else epochs, rounded up.
func (c *Config) TotalSteps(stepsPerEpoch int) int {
	if c.Steps > 0 {
		return c.Steps
	}
	return int(math.Ceil(c.Epochs * float64(stepsPerEpoch)))
}
