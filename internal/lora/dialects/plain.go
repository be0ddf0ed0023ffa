package dialects

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Plain is the form of layers in PyTorch without PEFT: MODULE.lora_a.weight [rank, in],
// MODULE.lora_b.weight [out, rank] and MODULE.alpha. [WritePlain] writes it.
const Plain Form = "plain"

// plainEndings lists the suffixes of keys. The first two are of PyTorch's layers, the next
// two of programs that compute x·A·B, such as MLX.
var plainEndings = []ending{
	{text: ".lora_a.weight", role: lora.RoleA}, {text: ".lora_b.weight", role: lora.RoleB},
	{text: ".lora_a", role: lora.RoleA}, {text: ".lora_b", role: lora.RoleB},
	{text: ".alpha", role: alpha},
}

// cutPlain splits a key of a plain layer. i is the number of its ending, or -1.
func cutPlain(key string) (module string, i int) {
	i = slices.IndexFunc(plainEndings, func(e ending) bool { return strings.HasSuffix(key, e.text) && key != e.text })
	if i < 0 {
		return key, -1
	}
	return strings.TrimSuffix(key, plainEndings[i].text), i
}

// isPlain reports whether a file has tensors with names of plain layers.
func isPlain(path string) bool {
	set, err := weights.Open(path)
	if err != nil {
		return false
	}
	defer set.Close()
	return arePlain(set.Names())
}

// arePlain reports whether names of tensors include names of plain layers.
func arePlain(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, i := cutPlain(name)
		return i >= 0 && plainEndings[i].role != alpha
	})
}

// tuneModules are the names that torchtune gives to modules of a layer.
var tuneModules = map[string]string{
	"attn.q_proj": "self_attn.q_proj", "attn.k_proj": "self_attn.k_proj", "attn.v_proj": "self_attn.v_proj", "attn.output_proj": "self_attn.o_proj",
	"mlp.w1": "mlp.gate_proj", "mlp.w2": "mlp.down_proj", "mlp.w3": "mlp.up_proj",
}

// tuneTypes are the model types for which names of torchtune are read.
var tuneTypes = []string{"llama", "mistral", "qwen2", "qwen3"}

var tuneName = regexp.MustCompile(`^layers\.(\d+)\.((?:attn|mlp)\.(?:q_proj|k_proj|v_proj|output_proj|w1|w2|w3))$`)

// plainModule returns the module with a name in a file: the name in the model, with or
// without model. or PEFT's prefix in front, or the name in torchtune.
func plainModule(model lora.Model, name string) (m lora.Module, tune, ok bool) {
	name = strings.TrimPrefix(name, "base_model.model.")
	if x := tuneName.FindStringSubmatch(name); x != nil {
		tune, name = true, "model.layers."+x[1]+"."+tuneModules[x[2]]
	} else if name == "output" {
		tune, name = true, "lm_head"
	}
	for _, full := range []string{name, "model." + name} {
		i := slices.IndexFunc(model.Modules, func(x lora.Module) bool { return x.Name == full && x.Kind == lora.Linear && x.TiedTo == "" })
		if i >= 0 {
			return model.Modules[i], tune, true
		}
	}
	return m, tune, false
}

// ReadPlain reads an adapter that consists of layers lora_a and lora_b, of a language model.
// Modules have their names in the model or in torchtune. The orientation of the matrices
// follows from their shapes or, if all are square, from their names. Alpha is a tensor
// MODULE.alpha, or lora_alpha in the metadata of the file or in an adapter_config.json
// beside it; without any, ReadPlain fails with lora.ErrMissing.
func ReadPlain(path string, m *model.Model) (*lora.Adapter, error) {
	set, err := weights.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", path, err)
	}
	defer set.Close()
	r := &plainReader{file: &file{path: path, set: set, model: lora.ModelOf(m.Config.ModelType, m.Modules())}, of: m, tuned: map[*group]bool{}}
	pieces, err := r.pieces()
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", path, err)
	}
	return r.build(pieces)
}

// plainReader reads a file of plain layers.
type plainReader struct {
	*file
	of    *model.Model
	byMLX bool            // the names are those of programs that compute x·A·B
	tuned map[*group]bool // groups with names of torchtune
}

// sort groups the tensors of the file by module.
func (r *plainReader) sort() {
	byName := map[string]*group{}
	for _, text := range r.set.Names() {
		name, i := cutPlain(text)
		if i < 0 {
			r.add(lora.ErrUnmatched, text, "expected an end such as .lora_a.weight, .lora_b.weight, .lora_a, .lora_b or .alpha")
			continue
		}
		m, tune, ok := plainModule(r.model, name)
		if !ok {
			r.add(lora.ErrUnmatched, text, "the model has no linear layer %q%s", name, namesOf(r.model).nearest(name))
			continue
		}
		e := plainEndings[i]
		g := r.place(byName, layer{name: m.Name, modules: []lora.Module{m}}, e.role, text)
		r.tuned[g] = r.tuned[g] || tune
		r.byMLX = r.byMLX || e.text == ".lora_a"
	}
}

// pieces reads the layers of the file.
func (r *plainReader) pieces() ([]piece, error) {
	r.sort()
	byName, err := r.config()
	if err != nil {
		return nil, err
	}
	var pieces []piece
	torch, turned := true, true // the orientations that fit all layers
	for _, g := range r.groups {
		for _, role := range []lora.Role{lora.RoleA, lora.RoleB} {
			if g.keys[role] == "" {
				r.add(lora.ErrMissing, g.layer.name, "the file has no lora_a or no lora_b of it, expected both")
			}
		}
		if g.keys[lora.RoleA] == "" || g.keys[lora.RoleB] == "" {
			continue
		}
		a, okA := r.load(g.keys[lora.RoleA])
		b, okB := r.load(g.keys[lora.RoleB])
		if !okA || !okB {
			continue
		}
		in, out := g.layer.modules[0].In, g.layer.modules[0].Out
		if len(a.Shape) != 2 || len(b.Shape) != 2 {
			r.add(lora.ErrShape, g.keys[lora.RoleA], "found %v and %v, expected two dimensions", a.Shape, b.Shape)
			continue
		}
		isTorch := a.Shape[1] == in && b.Shape[0] == out && a.Shape[0] == b.Shape[1] && a.Shape[0] > 0
		isTurned := a.Shape[0] == in && b.Shape[1] == out && a.Shape[1] == b.Shape[0] && a.Shape[1] > 0
		if !isTorch && !isTurned {
			r.add(lora.ErrShape, g.keys[lora.RoleA], "found %v and %v of %s, expected [rank %d] and [%d rank], or both transposed", a.Shape, b.Shape, g.keys[lora.RoleB], in, out)
			continue
		}
		torch, turned = torch && isTorch, turned && isTurned
		pieces = append(pieces, piece{module: g.layer.modules[0], a: a, b: b, group: g})
	}
	if len(r.problems) > 0 || len(pieces) == 0 {
		return nil, r.err()
	}
	if !torch && !turned {
		return nil, fmt.Errorf("%w: some layers are [rank, in] and [out, rank], others [in, rank] and [rank, out]; expected one orientation", lora.ErrOrientation)
	}
	for i := range pieces {
		if err := r.finish(&pieces[i], turned && (!torch || r.byMLX), byName); err != nil {
			return nil, err
		}
	}
	return pieces, nil
}

// finish turns the matrices of a piece to PEFT's orientation and the order of rows, and sets alpha.
func (r *plainReader) finish(p *piece, turn bool, strength func(rank int) (float64, error)) (err error) {
	a, errA := p.a.Float32s()
	b, errB := p.b.Float32s()
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	m, rank := p.module, p.a.Shape[0]
	if turn {
		rank = p.a.Shape[1]
		a, b = transpose(a, m.In, rank), transpose(b, rank, m.Out)
	}
	if r.tuned[p.group] {
		part, err := tunePart(r.of, m.Name)
		if err != nil {
			return err
		}
		b = part.Undo(b, []int{m.Out, rank})
	}
	p.a, p.b = tensor32(a, rank, m.In), tensor32(b, m.Out, rank)
	if key := p.group.keys[alpha]; key != "" {
		if p.alpha, p.given = r.number(key); !p.given {
			return r.err()
		}
		return nil
	}
	p.alpha, err = strength(rank)
	return err
}

// tunePart returns how the rows of a weight are ordered in torchtune, which is as in llama.cpp for
// the models that are supported.
func tunePart(m *model.Model, module string) (llamacpp.Part, error) {
	if t := m.Config.ModelType; !slices.Contains(tuneTypes, t) {
		return llamacpp.Part{}, fmt.Errorf("%w: names of torchtune for the model type %q, expected %s", lora.ErrUnsupported, t, strings.Join(tuneTypes, ", "))
	}
	d, err := llamacpp.Describe(m)
	if err != nil {
		return llamacpp.Part{}, err
	}
	parts, err := d.Parts(module + ".weight")
	if err != nil {
		return llamacpp.Part{}, err
	}
	return parts[0], nil
}

// config returns a function that returns alpha for layers of a rank without a tensor of their own.
func (r *plainReader) config() (func(rank int) (float64, error), error) {
	metadata, _ := r.set.Metadata()
	if text, ok := metadata["lora_alpha"]; ok {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x > 0 || x < 0) {
			return nil, fmt.Errorf("%w: lora_alpha in the metadata: found %q, expected a number other than 0", lora.ErrConfig, text)
		}
		return func(int) (float64, error) { return x, nil }, nil
	}
	dir := filepath.Dir(r.path)
	if _, err := os.Stat(filepath.Join(dir, lora.ConfigFile)); errors.Is(err, fs.ErrNotExist) {
		return func(int) (float64, error) {
			return 0, fmt.Errorf("%w: alpha: expected tensors MODULE.alpha, lora_alpha in the metadata of the file, or %s beside it", lora.ErrMissing, lora.ConfigFile)
		}, nil
	}
	c, err := lora.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Method() != lora.MethodLoRA || len(c.RankPattern)+len(c.AlphaPattern) > 0 || c.UseRSLoRA || c.Bias != "none" || len(c.ModulesToSave) > 0 {
		return nil, fmt.Errorf("%w: %s: a variant of LoRA, use_rslora, bias, modules_to_save or patterns of ranks and alphas for layers lora_a and lora_b", lora.ErrUnsupported, lora.ConfigFile)
	}
	return func(rank int) (float64, error) {
		if rank != c.R {
			return 0, fmt.Errorf("%w: %s: r: found %d, expected %d, the rank of the tensors", lora.ErrConfig, lora.ConfigFile, c.R, rank)
		}
		return c.LoraAlpha, nil
	}, nil
}

// WritePlain writes an adapter of a language model in the form Plain. Parts that the form does
// not have, see [lora.Placement.CheckPlain], are rejected by name.
func WritePlain(path string, a *lora.Adapter, p *lora.Placement) error {
	fail := func(err error) error { return fmt.Errorf("lora: adapter %s: %w", a.Dir, err) }
	if err := p.CheckPlain("layers lora_a and lora_b"); err != nil {
		return fail(err)
	}
	var entries []safetensors.Entry
	for _, t := range p.Targets {
		down, _ := a.Tensor(t.Key(lora.RoleA))
		up, _ := a.Tensor(t.Key(lora.RoleB))
		for i, x := range []tensor.Tensor{down, up} {
			e, err := entry(t.Name+plainEndings[i].text, x)
			if err != nil {
				return fail(err)
			}
			entries = append(entries, e)
		}
		entries = append(entries, scalarEntry(t.Name+".alpha", t.Scale*float64(t.Rank)))
	}
	if err := safetensors.WriteFile(path, entries, map[string]string{"format": "pt"}, safetensors.Durable()); err != nil {
		return fail(err)
	}
	return nil
}
