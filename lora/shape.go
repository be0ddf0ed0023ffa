package lora

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// Beginnings of the names of an adapter's params that hold fixed numbers.
const (
	basePrefix   = "base."   // replacements of checkpoint weights
	tokensPrefix = "tokens." // numbers of trained rows
)

// Constant returns the data of the param called name if it is fixed for this adapter (token
// numbers, replaced base weights), to be uploaded once. It returns nil for trained params.
func (j *Injection) Constant(name string) *tensor.Tensor { return j.constants[name] }

// Shape returns a key of everything except the model that the adapter's graphs depend
// on. Adapters of the same shape differ only in the contents of their params.
func (j *Injection) Shape() string {
	var s strings.Builder
	for _, t := range j.placement.Targets {
		fmt.Fprintf(&s, "%s %s rank %d scale %v dropout %v", t.Name, t.Method(), t.Rank, t.Scale, t.Dropout)
		for _, x := range t.Tensors() {
			fmt.Fprintf(&s, " %s", x.Role)
		}
		s.WriteByte('\n')
	}
	for _, key := range slices.Sorted(maps.Keys(j.types)) {
		fmt.Fprintf(&s, "%s %v\n", key, j.types[key])
	}
	for _, name := range slices.Sorted(maps.Keys(j.params)) {
		fmt.Fprintf(&s, "%s trained as %s %v\n", name, j.params[name].Key, j.params[name].Shape)
	}
	for _, name := range slices.Sorted(maps.Keys(j.tokens)) {
		fmt.Fprintf(&s, "%s %d tokens of %s\n", name, len(j.tokens[name].Tokens), j.tokens[name].Name)
	}
	for _, name := range slices.Sorted(maps.Keys(j.base)) {
		fmt.Fprintf(&s, "%s %v%v in the place of the model's\n", name, j.base[name].DType, j.base[name].Shape)
	}
	return s.String()
}
