package llamacpp

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model"
)

// Description describes a model for a GGUF file: the metadata, and the tensors without their values.
type Description struct {
	Architecture string
	Keys         []gguf.KeyValue
	Extra        []Extra
	// Context is the longest text that llama.cpp computes as the model does.
	Context int
	// Short is the length up to which a model with longrope has its short factors, 0 for others.
	// llama.cpp has them only in contexts that are no longer.
	Short int

	arch  *architecture
	e     *exporter
	count int // of layers
}

// Describe returns the metadata of a model, without its tokenizer. Errors:
// ErrUnsupported, with the name of a setting that llama.cpp does not compute.
func Describe(m *model.Model) (*Description, error) {
	e, err := newExporter(m)
	if err != nil {
		return nil, err
	}
	e.metadata()
	if e.err != nil {
		return nil, fmt.Errorf("%s: %w", m.Config.Architecture, e.err)
	}
	short := 0
	if m := e.RoPE; m.Type == "longrope" {
		short = int(m.Original)
	}
	return &Description{Architecture: e.arch.name, Short: short, Keys: e.keys, Extra: e.extra, Context: e.context, arch: e.arch, e: e, count: m.Config.Layers}, nil
}

// Part is a tensor of a GGUF file, computed from a weight of a model.
type Part struct {
	Name string
	// Rows selects rows of a matrix, or of each expert's matrix: from Rows[0] on, before
	// Rows[1]. Zero values select all.
	Rows [2]int
	// Pairs is the number of heads whose rows are reordered, 0 for none.
	Pairs int
	// Origin is added to all elements.
	Origin float32
	// Expert is the number of the expert whose matrix this is, in a tensor that stacks
	// Experts of them; both are 0 for other tensors.
	Expert, Experts int
	// Plain reports that the tensor stays f32: norms, biases and routers.
	Plain bool
}

var (
	layerName  = regexp.MustCompile(`^(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.(.+)\.(weight|bias)$`)
	expertName = regexp.MustCompile(`^mlp\.experts\.(\d+)\.(w1|w2|w3|gate_proj|up_proj|down_proj)$`)
	stackName  = regexp.MustCompile(`^(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.mlp\.experts\.(gate_up_proj|down_proj)$`)
	bodyName   = regexp.MustCompile(`^(?:model\.)?(?:language_model\.)?(?:model\.)?(embed_tokens|norm|lm_head)\.(weight|bias)$`)
)

// expertParts has the names in the table of the matrices of an expert.
var expertParts = map[string]string{"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}

// Parts returns the tensors that hold a weight, by its name in the model. Errors:
// ErrUnsupported.
func (d *Description) Parts(name string) ([]Part, error) {
	if m := bodyName.FindStringSubmatch(name); m != nil && m[2] == "weight" {
		switch m[1] {
		case "embed_tokens":
			parts := []Part{{Name: "token_embd.weight"}}
			if d.arch.untiedOnly && d.e.config.TiedEmbeddings {
				parts = append(parts, Part{Name: "output.weight"})
			}
			return parts, nil
		case "norm":
			return []Part{{Name: "output_norm.weight", Origin: d.arch.origin, Plain: true}}, nil
		default:
			if d.arch.tiedOnly {
				return nil, fmt.Errorf("%w: tensor %q: llama.cpp has no output matrix of its own for %s", ErrUnsupported, name, d.Architecture)
			}
			return []Part{{Name: "output.weight"}}, nil
		}
	}
	if m := stackName.FindStringSubmatch(name); m != nil {
		if m[2] == "down_proj" {
			return d.parts(m[1], "mlp.experts.down", "weight", name)
		}
		gate, err := d.parts(m[1], "mlp.experts.gate", "weight", name)
		if err != nil {
			return nil, err
		}
		up, err := d.parts(m[1], "mlp.experts.up", "weight", name)
		if err != nil {
			return nil, err
		}
		units := d.e.Experts.Units
		gate[0].Rows, up[0].Rows = [2]int{0, units}, [2]int{units, 2 * units}
		return append(gate, up...), nil
	}
	m := layerName.FindStringSubmatch(name)
	if m == nil {
		return nil, fmt.Errorf("%w: tensor %q of %s", ErrUnsupported, name, d.e.config.Architecture)
	}
	if x := expertName.FindStringSubmatch(m[2]); x != nil {
		parts, err := d.parts(m[1], "mlp.experts."+expertParts[x[2]], m[3], name)
		if err == nil {
			parts[0].Expert, _ = strconv.Atoi(x[1]) // of digits
			parts[0].Experts = d.e.Experts.Count
		}
		return parts, err
	}
	return d.parts(m[1], m[2], m[3], name)
}

// parts returns the tensor of a module of a layer.
func (d *Description) parts(layer, module, param, name string) ([]Part, error) {
	is, ok := d.arch.layers[module]
	if !ok || param == "bias" && !slices.Contains(d.arch.biases, module) {
		return nil, fmt.Errorf("%w: tensor %q: llama.cpp has no such tensor for %s", ErrUnsupported, name, d.Architecture)
	}
	p := Part{Name: "blk." + layer + "." + is + "." + param, Plain: param == "bias" || is == "ffn_gate_inp"}
	if strings.HasSuffix(is, "_norm") {
		p.Plain, p.Origin = true, d.arch.origin
	}
	if d.arch.pairs {
		switch module {
		case "self_attn.q_proj":
			p.Pairs = d.e.Heads
		case "self_attn.k_proj":
			p.Pairs = d.e.KVHeads
		}
	}
	return []Part{p}, nil
}

// Shape returns the shape of a part of a weight.
func (p *Part) Shape(shape []int) []int {
	shape = slices.Clone(shape)
	if p.Rows[1] > 0 {
		shape[len(shape)-2] = p.Rows[1] - p.Rows[0]
	}
	if strings.HasSuffix(p.Name, "_norm.weight") && len(shape) == 2 && shape[0] == 1 {
		return shape[1:]
	}
	return shape
}

// Apply computes the elements of the part from the elements of a weight of the given shape. The
// result may share memory with values.
func (p *Part) Apply(values []float32, shape []int) []float32 {
	if p.Rows[1] > 0 {
		rows, width := shape[len(shape)-2], shape[len(shape)-1]
		var out []float32
		for at := 0; at < len(values); at += rows * width {
			out = append(out, values[at+p.Rows[0]*width:at+p.Rows[1]*width]...)
		}
		values = out
	}
	if p.Pairs > 0 {
		values = interleave(values, p.Pairs, shape[0])
	}
	if p.Origin != 0 {
		values = slices.Clone(values)
		for i := range values {
			values[i] += p.Origin
		}
	}
	return values
}

// Undo is the inverse of Apply for parts that only reorder the rows of a matrix, of the given
// shape. The result may share memory with values.
func (p *Part) Undo(values []float32, shape []int) []float32 {
	if p.Pairs == 0 || len(values) == 0 {
		return values
	}
	out := make([]float32, len(values))
	width := len(values) / shape[0]
	for r := range shape[0] {
		from := pairedRow(r, shape[0]/p.Pairs)
		copy(out[from*width:(from+1)*width], values[r*width:(r+1)*width])
	}
	return out
}

// interleave reorders the rows of heads: row j of the first half and row j of the second
// become neighbours.
func interleave(values []float32, heads, rows int) []float32 {
	out := make([]float32, len(values))
	size, width := rows/heads, len(values)/rows
	for r := range rows {
		from := pairedRow(r, size)
		copy(out[r*width:(r+1)*width], values[from*width:(from+1)*width])
	}
	return out
}

// pairedRow returns the row of a matrix of heads of the given size that becomes row r.
func pairedRow(r, size int) int {
	head, j := r/size, r%size
	return head*size + j%2*(size/2) + j/2
}
