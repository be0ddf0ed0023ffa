package model

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// converted is a weight that differs from its stored form: it is quantized when uploaded, or
// its blocks are stored in several tensors.
type converted struct {
	dtype tensor.DType
	shape []int
	from  []string          // tensors of the checkpoint
	view  *safetensors.View // the source, or nil if it is not a single tensor
	block ir.DequantizeAttr // the elements that share one of these scales of a weight in 8-bit floats
	// fill computes the bytes, see nn.Weight.
	fill func(put func(offset int, data []byte) error) error
}

// size returns the number of bytes.
func (p *converted) size() int { return nn.Weight{DType: p.dtype, Shape: p.shape}.Size() }

// Quantization describes how the weights of a model are quantized.
type Quantization struct {
	// DType is the type of the quantized weights, or Invalid if there are none.
	DType tensor.DType
	// Stored reports that the files hold quantized weights. Otherwise they are quantized when
	// they are uploaded.
	Stored  bool
	Weights []string // their names
	Bytes   int64    // their size on a device
	Plain   int64    // their size in the type of config.json, two bytes per element
	// Widened lists the weights stored as LLM.int8 but used as F32, since their rows are not a
	// whole number of blocks.
	Widened []string
	Float8  bool // they are stored in 8-bit floats, not by bitsandbytes
	// Tool is GPTQ or AWQ if it has stored them.
	Tool string
	// Stacks is the number of stacks of experts that the files have in mxfp4, which are not among
	// Weights, and StackBytes their size there.
	Stacks     int
	StackBytes int64
	// Activations is how other programs round activations, which are not rounded here, if the
	// model says so.
	Activations string
}

// Quantization returns which weights are quantized, and how.
func (m *Model) Quantization() Quantization {
	q := Quantization{Stored: m.stored || len(m.float8) > 0}
	q.Float8 = q.Stored && !m.stored
	if m.Config.float8 != nil {
		q.Activations = m.Config.float8.Activations
	}
	q.addPacked(m)
	q.addMXFP4(m)
	for _, name := range m.float8 {
		if w, err := m.Weight(name); err == nil {
			q.add(name, w.DType, w.Size()+m.scaleBytes(name), w.Shape)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.converted)) {
		p := m.converted[name]
		if p.dtype != tensor.F8E4M3 && !p.dtype.Quantized() {
			if !m.stored { // scales and small tensors stored with 8-bit floats
				continue
			}
			q.Widened = append(q.Widened, name)
			continue
		}
		q.add(name, p.dtype, p.size()+m.scaleBytes(name), p.shape)
	}
	return q
}

func (q *Quantization) add(name string, d tensor.DType, bytes int, shape []int) {
	q.DType = d
	q.Weights = append(q.Weights, name)
	q.Bytes += int64(bytes)
	n, _ := tensor.NumElements(shape)
	q.Plain += int64(tensor.BF16.Bytes(n))
}

// Quantize makes uploads quantize the weights of all linear layers except the head, a piece at
// a time. Embeddings, norms, biases and the head keep their stored types. In models of
// diffusers, only linear layers in blocks are quantized. They hold nearly all of the weights
// and include the layers that compute the modulations of a block (a third of Qwen-Image).
// Graphs that were built earlier do not change. progress, if not nil, is called with the bytes
// of quantized weights that are done, at each upload to a device; calls do not overlap.
//
// Weights that are already stored in the same format are left unchanged. If they are stored in
// another format, Quantize returns ErrUnsupported.
func (m *Model) Quantize(method quant.Method, progress func(done, total int64)) error {
	to := method.DType()
	if to == tensor.Invalid {
		return nil
	}
	if m.Config.packed != nil {
		return fmt.Errorf("model: %s: %w: quantize: found weights that %s has quantised, expected ones that are not: leave quantize out, or begin with the unquantised model", m.Dir, ErrUnsupported, m.Config.packed.Tool)
	}
	if m.stored || len(m.float8) > 0 {
		if is := m.Quantization().DType; is != to {
			return fmt.Errorf("model: %s: %w: quantize: found weights that are stored as %s, expected %s, or weights that are not quantised: leave quantize out, or begin with the unquantised model", m.Dir, ErrUnsupported, quant.Name(is), method)
		}
		return nil
	}
	m.converted = map[string]*converted{}
	if err := m.findFloat8(); err != nil { // restores the conversions of weights outside blocks
		return err
	}
	report := &progressOf{report: progress}
	for _, module := range m.modules {
		name := m.inFile(module.Name + ".weight")
		if module.Kind == nn.KindConv1D {
			if err := m.quantizeTransposed(module.Name+".weight", to, report); err != nil {
				return err
			}
			continue
		}
		if module.Kind != nn.KindLinear || module.OutputEmbedding || m.Config.ofHead(module) || m.Config.Diffusers && !inBlock(module.Name) {
			continue
		}
		if fused, part, parts := m.Fused(module.Name + ".weight"); part > 0 {
			continue // quantized with the first part
		} else if parts > 0 {
			name = m.inFile(fused)
		}
		v, err := m.view(name)
		if err != nil {
			return err
		}
		from, err := tensor.ParseDType(v.DType.String())
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		if to == tensor.F8E4M3 {
			m.toFloat8(name, v, from, report)
			continue
		}
		p := &converted{dtype: to, shape: slices.Clone(v.Shape), from: []string{name}, view: v}
		p.fill = func(put func(int, []byte) error) error { return quantizeView(v, from, to, report.watch(put)) }
		report.total += int64(p.size())
		m.converted[name] = p
	}
	return nil
}

// block matches names of modules in a block of a model of diffusers, as in
// transformer_blocks.3.attn.to_q.
var block = regexp.MustCompile(`^[a-z_]+\.[0-9]+\.`)

func inBlock(module string) bool { return block.MatchString(module) }

// pieceElements is the number of elements that are quantized at a time: whole blocks that fit
// into the cache of a core.
const pieceElements = 1 << 14

// quantizeView passes the quantized blocks of a view to put, a piece at a time, and releases
// its pages, which are not needed again.
func quantizeView(v *safetensors.View, from, to tensor.DType, put func(int, []byte) error) error {
	values := make([]float32, pieceElements)
	blocks := make([]byte, to.Bytes(pieceElements))
	err := v.WithBytes(func(data []byte) error {
		size := from.Size()
		for first := 0; first < len(data)/size; first += pieceElements {
			n := min(pieceElements, len(data)/size-first)
			if err := tensor.ToFloat32(values[:n], data[first*size:][:n*size], from); err != nil {
				return err
			}
			piece := blocks[:to.Bytes(n)]
			if err := quant.Quantize(piece, values[:n], to); err != nil {
				return fmt.Errorf("from element %d on: %w", first, err)
			}
			if err := put(to.Bytes(first), piece); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && v.InPlace() {
		_ = safetensors.Advise([]*safetensors.View{v}, safetensors.AdviseDontNeed) // which is advice
	}
	return err
}

// progressOf sums the progress of several goroutines.
type progressOf struct {
	mu          sync.Mutex
	done, total int64
	report      func(done, total int64)
}

// watch wraps put to report progress after each piece. When all weights are uploaded again, to
// another device, the count restarts.
func (p *progressOf) watch(put func(int, []byte) error) func(int, []byte) error {
	if p.report == nil {
		return put
	}
	return func(offset int, data []byte) error {
		if err := put(offset, data); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.done >= p.total {
			p.done = 0
		}
		p.done += int64(len(data))
		p.report(p.done, p.total)
		return nil
	}
}
