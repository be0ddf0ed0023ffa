package dialects

import (
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// piece is the adapter of one module.
type piece struct {
	module          lora.Module
	a, b            tensor.Tensor // [rank, in], [out, rank]
	bias, magnitude *tensor.Tensor
	alpha           float64
	given           bool // alpha is in the file
	group           *group
}

// rank returns the number of rows of A.
func (p piece) rank() int { return p.a.Shape[0] }

// key returns the key of a part in the file.
func (p piece) key(x part) string { return p.group.keys[x] }

// tensors returns the adapter as tensors with PEFT's keys.
func (p piece) tensors() []lora.Tensor {
	t := lora.Target{Module: p.module}
	out := []lora.Tensor{{Key: t.Key(lora.RoleA), Tensor: p.a}, {Key: t.Key(lora.RoleB), Tensor: p.b}}
	if p.bias != nil {
		out = append(out, lora.Tensor{Key: t.Key(lora.RoleBBias), Tensor: *p.bias})
	}
	if p.magnitude != nil {
		out = append(out, lora.Tensor{Key: t.Key(lora.RoleMagnitude), Tensor: *p.magnitude})
	}
	return out
}

// pieces reads the tensors of a group.
func (f *file) pieces(g *group) []piece {
	if g.keys[down] == "" || g.keys[up] == "" {
		return nil // noted before
	}
	a, okA := f.load(g.keys[down])
	b, okB := f.load(g.keys[up])
	if !okA || !okB || !f.fits(g, a, b) {
		return nil
	}
	whole := piece{a: a, b: b, alpha: float64(a.Shape[0]), group: g}
	if key := g.keys[alpha]; key != "" {
		if whole.alpha, whole.given = f.number(key); !whole.given {
			return nil
		}
	}
	if len(g.layer.modules) > 1 || g.layer.swapped {
		for _, x := range []part{bias, magnitude} {
			if g.keys[x] != "" {
				f.add(lora.ErrUnsupported, g.keys[x], "the layer is %s, whose parts are not the file's", g.layer)
				return nil
			}
		}
		return cut(g.layer, whole)
	}
	whole.module = g.layer.modules[0]
	for _, x := range []struct {
		part part
		to   **tensor.Tensor
	}{{bias, &whole.bias}, {magnitude, &whole.magnitude}} {
		if g.keys[x.part] == "" {
			continue
		}
		t, ok := f.load(g.keys[x.part])
		if !ok {
			return nil
		}
		*x.to = &t
	}
	return []piece{whole}
}

// fits checks the shapes of both factors.
func (f *file) fits(g *group, a, b tensor.Tensor) bool {
	in, out := g.layer.modules[0].In, g.layer.out()
	isA := func(s []int) bool { return len(s) == 2 && s[1] == in && s[0] > 0 }
	isB := func(s []int) bool { return len(s) == 2 && s[0] == out && s[1] > 0 }
	turned := func(s []int) []int { s = slices.Clone(s); slices.Reverse(s); return s }
	kind := func(is func([]int) bool, s []int) error {
		if is(turned(s)) {
			return lora.ErrOrientation
		}
		return lora.ErrShape
	}
	switch {
	case !isA(a.Shape):
		f.add(kind(isA, a.Shape), g.keys[down], "found %v, expected [rank %d] for %s", a.Shape, in, g.layer)
	case !isB(b.Shape):
		f.add(kind(isB, b.Shape), g.keys[up], "found %v, expected [%d rank] for %s", b.Shape, out, g.layer)
	case a.Shape[0] != b.Shape[1]:
		f.add(lora.ErrShape, g.keys[up], "its rank is %d, that of %s %d", b.Shape[1], g.keys[down], a.Shape[0])
	default:
		return true
	}
	return false
}

// number reads a tensor of one element, which some trainers write as an integer.
func (f *file) number(key string) (float64, bool) {
	t, ok := f.loadAny(key)
	if !ok {
		return 0, false
	}
	if t.NumElements() != 1 {
		f.add(lora.ErrShape, key, "found %v, expected one number", t.Shape)
		return 0, false
	}
	v, err := t.Float32s()
	if err != nil {
		f.add(lora.ErrDType, key, "%v", err)
		return 0, false
	}
	x := float64(v[0])
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		f.add(lora.ErrConfig, key, "alpha is %v, expected a number other than zero", x)
		return 0, false
	}
	return x, true
}

// once reports modules with more than one adapter and sorts the rest in the order of
// the model.
func (f *file) once(pieces []piece) []piece {
	place := map[string]int{}
	for i, m := range f.model.Modules {
		place[m.Name] = i
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return place[a.module.Name] - place[b.module.Name] })
	for i := 1; i < len(pieces); i++ {
		if a, b := pieces[i-1], pieces[i]; a.module.Name == b.module.Name {
			f.add(lora.ErrUnmatched, b.key(down), "%s is of %s too", a.key(down), b.module.Name)
		}
	}
	return pieces
}
