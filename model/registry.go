package model

import (
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/nn"
)

// Architecture is a family of models, registered by the name that config.json
// lists under architectures.
type Architecture struct {
	ModelType string
	// Configure reads what is the family's own.
	Configure func(c *Config, f *Fields)
	Build     func(c *Config, b *nn.Builder, in nn.Inputs) Outputs
}

var registry = map[string]Architecture{}

// Register makes an architecture known. It panics when the name is taken.
func Register(name string, a Architecture) {
	if _, ok := registry[name]; ok {
		panic("model: " + name + " is registered twice")
	}
	registry[name] = a
}

// Architectures lists the supported architectures.
func Architectures() []string { return slices.Sorted(maps.Keys(registry)) }
