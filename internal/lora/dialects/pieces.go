package dialects

import (
	"maps"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// piece is the adapter of one module.
type piece struct {
	module lora.Module
	a, b   tensor.Tensor               // [rank, in], [out, rank]
	more   map[lora.Role]tensor.Tensor // other tensors
	alpha  float64
	given  bool // alpha is in the file
	group  *group
}

// rank returns the number of rows of A.
func (p piece) rank() int { return p.a.Shape[0] }

// key returns the key of a tensor in the file.
func (p piece) key(r lora.Role) string { return p.group.keys[r] }

// tensors returns the adapter as tensors with PEFT's keys.
func (p piece) tensors() []lora.Tensor {
	var out []lora.Tensor
	add := func(r lora.Role, t tensor.Tensor) {
		i := slices.IndexFunc(endings, func(e ending) bool { return e.role == r })
		out = append(out, lora.Tensor{Key: "base_model.model." + p.module.Name + endings[i].text, Tensor: t})
	}
	add(lora.RoleA, p.a)
	add(lora.RoleB, p.b)
	for _, r := range slices.Sorted(maps.Keys(p.more)) {
		add(r, p.more[r])
	}
	return out
}

// pieces reads the tensors of a group.
func (f *file) pieces(g *group) []piece {
	if g.keys[lora.RoleA] == "" || g.keys[lora.RoleB] == "" {
		return nil // noted before
	}
	a, okA := f.load(g.keys[lora.RoleA])
	b, okB := f.load(g.keys[lora.RoleB])
	if !okA || !okB || !f.fits(g, a, b) {
		return nil
	}
	whole := piece{a: a, b: b, alpha: float64(a.Shape[0]), group: g}
	if key := g.keys[alpha]; key != "" {
		if whole.alpha, whole.given = f.number(key); !whole.given {
			return nil
		}
	}
	joined := len(g.layer.modules) > 1 || g.layer.swapped
	whole.more = map[lora.Role]tensor.Tensor{}
	for _, r := range slices.Sorted(maps.Keys(g.keys)) {
		if r == lora.RoleA || r == lora.RoleB || r == alpha {
			continue
		}
		if joined {
			f.add(lora.ErrUnsupported, g.keys[r], "the layer is %s, whose parts are not the file's", g.layer)
			return nil
		}
		t, ok := f.load(g.keys[r])
		if !ok {
			return nil
		}
		whole.more[r] = t
	}
	if joined {
		return cut(g.layer, whole)
	}
	whole.module = g.layer.modules[0]
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
		f.add(kind(isA, a.Shape), g.keys[lora.RoleA], "found %v, expected [rank %d] for %s", a.Shape, in, g.layer)
	case !isB(b.Shape):
		f.add(kind(isB, b.Shape), g.keys[lora.RoleB], "found %v, expected [%d rank] for %s", b.Shape, out, g.layer)
	case a.Shape[0] != b.Shape[1]:
		f.add(lora.ErrShape, g.keys[lora.RoleB], "its rank is %d, that of %s %d", b.Shape[1], g.keys[lora.RoleA], a.Shape[0])
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
			f.add(lora.ErrUnmatched, b.key(lora.RoleA), "%s is of %s too", a.key(lora.RoleA), b.module.Name)
		}
	}
	return pieces
}
