package dialects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// file is one that is read.
type file struct {
	path     string
	set      *weights.Set
	model    lora.Model
	names    *names
	groups   []*group
	problems []lora.Problem
}

// group holds the tensors of a file for one layer.
type group struct {
	layer layer
	keys  map[lora.Role]string
}

func (f *file) add(kind error, key, format string, args ...any) {
	f.problems = append(f.problems, lora.Problem{Kind: kind, Key: key, Detail: fmt.Sprintf(format, args...)})
}

func (f *file) err() error {
	if len(f.problems) == 0 {
		return nil
	}
	return &lora.CheckError{Dir: f.path, Problems: f.problems}
}

// sort groups the tensors by layer.
func (f *file) sort(o Options) {
	byName := map[string]*group{}
	for _, text := range f.set.Names() {
		k, problem := parseKey(text)
		if problem != nil {
			if problem.Kind != ErrElsewhere || !o.TransformerOnly {
				f.problems = append(f.problems, *problem)
			}
			continue
		}
		l, ok := f.names.find(k.module)
		if !ok {
			f.unknown(k)
			continue
		}
		f.place(byName, l, k.role, text)
	}
	for _, g := range f.groups {
		f.complete(g)
	}
}

// place adds a tensor to the group of its layer, and reports a second one with the same role.
func (f *file) place(byName map[string]*group, l layer, role lora.Role, text string) *group {
	g := byName[l.name]
	if g == nil {
		g = &group{layer: l, keys: map[lora.Role]string{}}
		byName[l.name] = g
		f.groups = append(f.groups, g)
	}
	if other := g.keys[role]; other != "" {
		f.add(lora.ErrUnmatched, text, "%s has the same place", other)
	} else {
		g.keys[role] = text
	}
	return g
}

// unknown reports a tensor whose module is not in the model.
func (f *file) unknown(k key) {
	const explained = 8 // to find the nearest of many names costs; a reader looks at a few
	nearest := ""
	if len(f.problems) < explained {
		nearest = f.names.nearest(k.module)
	}
	f.add(lora.ErrUnmatched, k.text, "the transformer has no linear layer %q%s", k.module, nearest)
}

// complete reports the missing half of a group.
func (f *file) complete(g *group) {
	for p, other := range map[lora.Role]lora.Role{lora.RoleA: lora.RoleB, lora.RoleB: lora.RoleA} {
		if g.keys[p] != "" {
			continue
		}
		there := g.keys[other]
		if there == "" {
			if p == lora.RoleB { // said once
				continue
			}
			i := slices.IndexFunc(endings, func(e ending) bool { return g.keys[e.role] != "" })
			there = g.keys[endings[i].role]
		}
		f.add(lora.ErrMissing, otherHalf(there, p), "%s is there", there)
	}
}

// otherHalf returns the name of the tensor with role p in a group that contains a tensor
// named there.
func otherHalf(there string, p lora.Role) string {
	for i, e := range endings {
		module, ok := strings.CutSuffix(there, e.text)
		if !ok || module == "" {
			continue
		}
		if e.role == lora.RoleA || e.role == lora.RoleB {
			return module + endings[i^1].text // halves of one style are neighbours
		}
		return module + endings[half(p)].text
	}
	return there
}

// load copies a tensor of a floating-point type into memory.
func (f *file) load(key string) (t tensor.Tensor, ok bool) {
	if t, ok = f.loadAny(key); ok && !t.DType.IsFloat() {
		f.add(lora.ErrDType, key, "found %v, expected a float", t.DType)
		ok = false
	}
	return t, ok
}

// loadAny copies a tensor into memory.
func (f *file) loadAny(key string) (t tensor.Tensor, ok bool) {
	v, err := f.set.Lookup(key)
	if err != nil {
		f.add(lora.ErrMissing, key, "%v", err)
		return t, false
	}
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		f.add(lora.ErrDType, key, "%v", err)
		return t, false
	}
	t = tensor.Tensor{DType: d, Shape: slices.Clone(v.Shape)}
	if err := v.WithBytes(func(data []byte) error { t.Data = slices.Clone(data); return nil }); err != nil {
		f.add(lora.ErrMissing, key, "its bytes cannot be read: %v", err)
		return t, false
	}
	return t, true
}
