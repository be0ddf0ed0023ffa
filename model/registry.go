package model

import (
	"maps"
	"slices"
)

// Architecture is a family of models, registered by the name that config.json
// lists under architectures.
type Architecture struct {
	ModelType string
	// Read reads what is the family's own; what all share is in c already.
	Read func(c *Config, f *Fields) Family
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
