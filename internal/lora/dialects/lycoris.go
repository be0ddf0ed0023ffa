package dialects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// lycorisRoles lists the tensors of LoHa and of LoKr that a linear layer may have. Keys end in them.
var lycorisRoles = [2][]lora.Role{
	{"hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"},
	{"lokr_w1", "lokr_w1_a", "lokr_w1_b", "lokr_w2", "lokr_w2_a", "lokr_w2_b"},
}

// lycorisKind returns the index in lycorisRoles of the method of a file, or -1 if it is neither.
func (f *file) lycorisKind() int {
	for i, part := range []string{".hada_", ".lokr_"} {
		if slices.ContainsFunc(f.set.Names(), func(name string) bool { return strings.Contains(name, part) }) {
			return i
		}
	}
	return -1
}

// factors holds the tensors of one module, and its rank and alpha.
type factors struct {
	module  lora.Module
	tensors map[lora.Role]tensor.Tensor
	rank    int
	alpha   float64
}

// lycoris reads a file of LoHa or LoKr.
func (f *file) lycoris(kind int, o Options) (*lora.Adapter, error) {
	f.sortLycoris(lycorisRoles[kind], o)
	var all []factors
	for _, g := range f.groups {
		if kind == 0 {
			all = append(all, f.loha(g)...)
		} else if x, ok := f.lokr(g); ok {
			all = append(all, x)
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("lora: adapter %s: %w: the file has no tensors for the transformer", f.path, lora.ErrMissing)
	}
	c := lora.LoHa()
	if kind == 1 {
		var err error
		if c, err = lokrConfig(all); err != nil {
			return nil, fmt.Errorf("lora: adapter %s: %w", f.path, err)
		}
	}
	var names []string
	var ranks []int
	var alphas []float64
	var tensors []lora.Tensor
	for _, x := range all {
		names, ranks, alphas = append(names, x.module.Name), append(ranks, x.rank), append(alphas, x.alpha)
		for _, r := range slices.Sorted(maps.Keys(x.tensors)) {
			tensors = append(tensors, lora.Tensor{Key: "base_model.model." + x.module.Name + "." + string(r), Tensor: x.tensors[r]})
		}
	}
	setRanks(c, names, ranks, alphas)
	c.TargetModules.Names, c.ExcludeModules.Names = targets(f.model, names)
	p, err := lora.NewPlacement(c, f.model)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", f.path, err)
	}
	return f.checked(c, p, tensors)
}

// sortLycoris groups the tensors of a file by layer.
func (f *file) sortLycoris(roles []lora.Role, o Options) {
	byName := map[string]*group{}
	for _, text := range f.set.Names() {
		if slices.ContainsFunc(elsewhere, func(p string) bool { return strings.HasPrefix(text, p) }) {
			if !o.TransformerOnly {
				f.add(ErrElsewhere, text, "text encoders are not adapted here; to read the rest, ask for the transformer alone")
			}
			continue
		}
		dot := max(0, strings.LastIndexByte(text, '.'))
		k := key{text: text, module: text[:dot], role: lora.Role(text[min(dot+1, len(text)):])}
		if k.role != alpha && !slices.Contains(roles, k.role) {
			f.add(lora.ErrUnsupported, text, "expected .alpha or one of %v of a linear layer", roles)
			continue
		}
		l, ok := f.names.find(k.module)
		if !ok {
			f.unknown(k)
			continue
		}
		f.place(byName, l, k.role, text)
	}
}

// matrices loads the tensors of a group, which must be matrices, except alpha.
func (f *file) matrices(g *group) (map[lora.Role]tensor.Tensor, bool) {
	all := map[lora.Role]tensor.Tensor{}
	for _, r := range slices.Sorted(maps.Keys(g.keys)) {
		if r == alpha {
			continue
		}
		t, ok := f.load(g.keys[r])
		if !ok {
			return nil, false
		}
		if len(t.Shape) != 2 || t.Shape[0] == 0 || t.Shape[1] == 0 {
			f.add(lora.ErrShape, g.keys[r], "found %v, expected a matrix, as linear layers have", t.Shape)
			return nil, false
		}
		all[r] = t
	}
	return all, true
}

// strength returns alpha of a group, or rank if the file has none.
func (f *file) strength(g *group, rank int) (float64, bool) {
	if g.keys[alpha] == "" {
		return float64(rank), true
	}
	return f.number(g.keys[alpha])
}

// loha returns the factors of a layer. Those of several modules share the right matrices and divide the rows of
// the left ones.
func (f *file) loha(g *group) (all []factors) {
	m, ok := f.matrices(g)
	if !ok {
		return nil
	}
	in, out := g.layer.modules[0].In, g.layer.out()
	rank := 0
	for i, r := range lycorisRoles[0] {
		t, ok := m[r]
		if !ok {
			f.add(lora.ErrMissing, g.layer.name+"."+string(r), "LoHa has four matrices for a layer")
			return nil
		}
		if i == 0 {
			rank = t.Shape[1]
		}
		want := []int{out, rank}
		if i%2 == 1 {
			want = []int{rank, in}
		}
		if !slices.Equal(t.Shape, want) {
			f.add(lora.ErrShape, g.keys[r], "found %v, expected %v for %s", t.Shape, want, g.layer)
			return nil
		}
	}
	a, ok := f.strength(g, rank)
	if !ok {
		return nil
	}
	left := []lora.Role{lycorisRoles[0][0], lycorisRoles[0][2]}
	if g.layer.swapped {
		for _, r := range left {
			m[r] = swap(m[r])
		}
	}
	row := 0
	for _, module := range g.layer.modules {
		x := factors{module: module, tensors: maps.Clone(m), rank: rank, alpha: a}
		for _, r := range left {
			x.tensors[r] = rows(m[r], row, row+module.Out)
		}
		row += module.Out
		all = append(all, x)
	}
	return all
}

// lokr returns the factors of a layer. If neither of them is decomposed, the scale is 1 whatever alpha is, as LyCORIS
// has it.
func (f *file) lokr(g *group) (x factors, ok bool) {
	if len(g.layer.modules) > 1 || g.layer.swapped {
		f.add(lora.ErrUnsupported, g.layer.name, "LoKr of a layer that is %s here: Kronecker products cannot be divided", g.layer)
		return x, false
	}
	m, ok := f.matrices(g)
	if !ok {
		return x, false
	}
	x = factors{module: g.layer.modules[0], tensors: m}
	for i := 0; i < 6; i += 3 {
		whole, a, b := lycorisRoles[1][i], lycorisRoles[1][i+1], lycorisRoles[1][i+2]
		_, isWhole := m[whole]
		_, hasA := m[a]
		_, hasB := m[b]
		if isWhole == (hasA || hasB) || hasA != hasB {
			f.add(lora.ErrMissing, g.layer.name+"."+string(whole), "expected it, or both %s and %s instead", a, b)
			return x, false
		}
		if !isWhole {
			rank := m[a].Shape[1]
			if m[b].Shape[0] != rank || x.rank != 0 && x.rank != rank {
				f.add(lora.ErrShape, g.keys[b], "found %v, expected the rank %d", m[b].Shape, max(x.rank, rank))
				return x, false
			}
			x.rank = rank
		}
	}
	if x.rank == 0 {
		outer, inner := kronShape(x)
		x.rank = max(outer[0], outer[1], inner[0], inner[1])
		x.alpha = float64(x.rank)
		return x, true
	}
	x.alpha, ok = f.strength(g, x.rank)
	return x, ok
}

// kronShape returns the shapes of both factors of LoKr.
func kronShape(x factors) (outer, inner [2]int) {
	size := func(whole, a, b lora.Role) [2]int {
		if t, ok := x.tensors[whole]; ok {
			return [2]int{t.Shape[0], t.Shape[1]}
		}
		return [2]int{x.tensors[a].Shape[0], x.tensors[b].Shape[1]}
	}
	r := lycorisRoles[1]
	return size(r[0], r[1], r[2]), size(r[3], r[4], r[5])
}

// lokrConfig returns the configuration with the decompose_factor that gives the sizes of all factors.
func lokrConfig(all []factors) (*lora.Config, error) {
	both := false
	candidates := []int{-1}
	for _, x := range all {
		_, decomposed := x.tensors["lokr_w1_a"]
		both = both || decomposed
		outer, inner := kronShape(x)
		candidates = append(candidates, outer[0], outer[1], inner[0], inner[1])
	}
	slices.Sort(candidates)
	var found *factors
	for _, factor := range slices.Compact(candidates) {
		i := slices.IndexFunc(all, func(x factors) bool {
			outer, inner := kronShape(x)
			a, b := lora.Factorize(x.module.Out, factor)
			c, d := lora.Factorize(x.module.In, factor)
			return outer != [2]int{a, c} || inner != [2]int{b, d}
		})
		if i < 0 {
			return lora.LoKr(both, factor), nil
		}
		if found == nil {
			found = &all[i]
		}
	}
	outer, inner := kronShape(*found)
	return nil, fmt.Errorf("%w: LoKr of %s [%d %d]: found factors of %v and %v, which no decompose_factor of all layers gives", lora.ErrUnsupported, found.module.Name, found.module.Out, found.module.In, outer, inner)
}

// lycorisFile returns the entries of a file of LyCORIS.
func (w *writer) lycorisFile() ([]safetensors.Entry, error) {
	var entries []safetensors.Entry
	for _, t := range w.placement.Targets {
		name, strength := "lycoris_"+flatten(t.Name)+".", t.Scale*float64(t.Rank)
		whole := w.adapterHas(t, "lokr_w1") && w.adapterHas(t, "lokr_w2")
		for _, s := range t.Tensors() {
			x, _ := w.adapter.Tensor(s.Key)
			if whole && s.Role == "lokr_w2" && t.Scale != 1 { // readers take a scale of 1
				values, err := x.Float32s()
				if err != nil {
					return nil, err
				}
				for i := range values {
					values[i] = float32(float64(values[i]) * t.Scale)
				}
				x = tensor32(values, x.Shape[0], x.Shape[1])
			}
			e, err := entry(name+string(s.Role), x)
			if err != nil {
				return nil, err
			}
			entries = append(entries, e)
		}
		entries = append(entries, scalarEntry(name+"alpha", strength))
	}
	return entries, nil
}

func (w *writer) adapterHas(t lora.Target, r lora.Role) bool {
	_, ok := w.adapter.Tensor(t.Key(r))
	return ok
}
