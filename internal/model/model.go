// Package model reads Hugging Face checkpoints and builds their graphs. Each architecture has
// its own file and is registered under its name in config.json. Weights are memory-mapped and
// used in place.
package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Part selects the part of a checkpoint that a model uses. It also determines the names of
// modules.
type Part string

// The parts.
const (
	AsSaved Part = ""     // as the architecture in config.json has it
	Body    Part = "body" // without a head, as transformers' AutoModel
	// Classifier selects the model with a classification head, see [OpenClassifier].
	Classifier Part = "classifier"
)

// Model is a checkpoint: its configuration and its mapped weights.
type Model struct {
	Config *Config
	Dir    string
	Source weights.Source // the files that the weights are from

	set     *weights.Set
	modules []nn.Module
	used    []string
	unread  []Unread
	tasks   map[Task]bool // that it can be trained for
	logits  bool          // it has a language head

	converted map[string]*converted // weights that are quantised on load or in the files, by name
	stored    bool                  // in the files, by bitsandbytes
	float8    []string              // weights that the files have in 8-bit floats and that stay so
	fresh     map[string]nn.Weight  // of no file, see begin
	made      bool                  // weights that are not in place are not kept

	mu   sync.Mutex
	kept map[string]*safetensors.View // weights that are not in place, with their bytes
}

// Open reads dir/config.json, maps the weights, and checks that every tensor that the model
// needs is present with the right shape. Without safetensors files it uses files of
// torch.save, see weights.OpenModel and weights.OpenDiffusion. [Model.Unread] lists the
// tensors that the model does not read. Errors: ErrConfig, ErrUnsupported, ErrUnread,
// nn.ErrMissing, nn.ErrShape and errors of weights.OpenModel.
func Open(dir string) (*Model, error) { return OpenAs(dir, AsSaved) }

// OpenAs opens a part of a checkpoint, AsSaved or Body. It is otherwise like Open.
func OpenAs(dir string, part Part) (*Model, error) {
	return open(dir, func(m *Model) error {
		if part == Body {
			m.Config.Part = Body
		}
		return nil
	})
}

// open opens a model; choose selects the part of the checkpoint.
func open(dir string, choose func(*Model) error) (*Model, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("model: %s is a file, expected a folder with config.json and model.safetensors", dir)
	}
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	open := weights.OpenModel
	if c.Diffusers {
		open = weights.OpenDiffusion
	}
	set, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if set, err = c.unpack(dir, set); err != nil {
		return nil, fmt.Errorf("model: %s: %w", filepath.Clean(dir), err)
	}
	return assemble(&Model{Config: c, Dir: dir, set: set, made: set.Converts()}, choose)
}

// OpenSet opens a model from weights that are already open and a configuration made for them.
// path names the model in messages. Weights that need conversion are converted again at each
// upload. The model closes the weights; OpenSet closes them if it fails.
func OpenSet(c *Config, path string, set *weights.Set) (*Model, error) {
	return assemble(&Model{Config: c, Dir: path, set: set, made: true}, func(*Model) error { return nil })
}

// assemble checks the weights of a model against its configuration.
func assemble(m *Model, choose func(*Model) error) (*Model, error) {
	set, dir := m.set, m.Dir
	m.Source, m.converted = set.Origin(), map[string]*converted{}
	for _, find := range []func(*Model) error{(*Model).findStored, (*Model).findFloat8} {
		if err := find(m); err != nil {
			set.Close()
			return nil, err
		}
	}
	for _, step := range []func(*Model) error{choose, (*Model).untieStored, (*Model).probe, (*Model).checkPacked, (*Model).findUnread} {
		if err := step(m); err != nil {
			set.Close()
			return nil, fmt.Errorf("model: %s: %w", filepath.Clean(dir), err)
		}
	}
	// All of it will be read, over and over.
	if views, err := set.Views(); err == nil {
		_ = safetensors.Advise(views, safetensors.AdviseHugePages) // which is advice
	}
	return m, nil
}

// probe builds the model once to see which modules and tensors it has.
func (m *Model) probe() error {
	g := graph.New()
	b := nn.NewBuilder(g, m, nn.Options{OtherBounds: 2})
	out := m.Build(b)
	m.tasks = map[Task]bool{}
	for t := range out.Losses {
		m.tasks[t] = true
	}
	m.logits = out.Head != nil
	switch {
	case m.logits:
		out.Head.Logits()
	case out.Scores != nil:
		out.Scores()
	}
	if err := g.Err(); err != nil {
		return rootError(err)
	}
	m.modules, m.used = b.Modules(), b.Used()
	return nn.CheckStreams(m.modules)
}

// bidirectional is a Family whose tokens may see later ones.
type bidirectional interface{ bidirectional() bool }

// CheckTask returns ErrTask if the model does not support the task.
func (m *Model) CheckTask(t Task) error {
	if m.tasks[t] {
		return nil
	}
	if f, ok := m.Config.Family.(bidirectional); t == NextToken && ok && f.bidirectional() {
		return fmt.Errorf("model: %s: %s: %w: the task %q: config.json makes attention bidirectional (is_causal false, or use_bidirectional_attention), so the model embeds and classifies texts and does not continue them",
			filepath.Clean(m.Dir), m.Config.Architecture, ErrTask, t)
	}
	return fmt.Errorf("model: %s: %s: %w: the task %q; it has %s", filepath.Clean(m.Dir), m.Config.Architecture, ErrTask, t, known(m.tasks))
}

// CheckLogits fails with ErrTask if the model has no language head. A bidirectional model
// may have one, although it continues no texts.
func (m *Model) CheckLogits() error {
	if m.logits {
		return nil
	}
	return m.CheckTask(NextToken)
}

// rootError removes the position in the model's code where a tensor was requested: the
// checkpoint is at fault, not the code.
func rootError(err error) error {
	for _, is := range []error{nn.ErrMissing, nn.ErrShape, safetensors.ErrNotFound} {
		if !errors.Is(err, is) {
			continue
		}
		for {
			u, ok := err.(interface{ Unwrap() []error })
			if !ok || len(u.Unwrap()) < 2 {
				return err
			}
			next := u.Unwrap()[len(u.Unwrap())-1]
			if !errors.Is(next, is) || next == is {
				return err
			}
			err = next
		}
	}
	return err
}

// Build emits the model's graph, which declares the inputs that it reads.
func (m *Model) Build(b *nn.Builder) Outputs { return m.Config.Family.Build(m.Config, b) }

// Modules lists the model's layers with parameters.
func (m *Model) Modules() []nn.Module { return m.modules }

// Used lists the tensors that the model reads, in its order.
func (m *Model) Used() []string { return m.used }

// Stored lists the tensors of the checkpoint that hold the named weight. They are several for
// a weight that is stored quantized, and none for a newly initialized one.
func (m *Model) Stored(name string) []string {
	if _, ok := m.fresh[name]; ok {
		return nil
	}
	name, _ = transposedOf(name)
	if two := m.storedMXFP4(name); two != nil {
		return two
	}
	if fused, _, parts := m.Fused(name); parts > 0 {
		name = fused
	}
	name = m.inFile(name)
	if p := m.converted[name]; p != nil {
		return p.from
	}
	return []string{name}
}

// Set returns the checkpoint's files.
func (m *Model) Set() *weights.Set { return m.set }

// Has reports whether the model has a tensor of that name, of the checkpoint or fresh.
func (m *Model) Has(name string) bool {
	if stored, ok := transposedOf(name); ok {
		return m.Has(stored)
	}
	_, ok := m.fresh[name]
	if fused, _, parts := m.Fused(name); parts > 0 {
		name = fused
	}
	name = m.inFile(name)
	return ok || m.converted[name] != nil || m.set.Has(name)
}

// inFile returns the name of a tensor in this checkpoint.
func (m *Model) inFile(name string) string {
	if weight, ok := strings.CutSuffix(name, nn.ScaleSuffix); ok { // perhaps derived from the scale stored with the weight
		stored := m.inFile(weight) + nn.ScaleSuffix
		if m.converted[stored] != nil || strings.HasSuffix(weight, weightSuffix) {
			return stored
		}
	}
	r, ok := m.Config.Family.(Renamer)
	if !ok || m.set.Has(name) {
		return name
	}
	for _, other := range r.OtherNames(name) {
		if m.set.Has(other) {
			return other
		}
	}
	return name
}

// Weight returns a tensor of the checkpoint in the mapped file. A tensor that is not
// contiguous there (a transposed view, a compressed file) is read once and kept in memory. A
// quantized one is computed when its bytes are requested. If a tensor has more axes than a
// value may have (ir.MaxRank), the last ones are merged.
func (m *Model) Weight(name string) (nn.Weight, error) {
	if w, ok := m.fresh[name]; ok {
		return w, nil
	}
	if stored, ok := transposedOf(name); ok {
		return m.transposed(stored)
	}
	if fused, part, parts := m.Fused(name); parts > 0 {
		w, err := m.Weight(fused)
		if err != nil {
			return w, err
		}
		return partOf(fused, w, part, parts)
	}
	name = m.inFile(name)
	if p := m.converted[name]; p != nil {
		w := nn.Weight{DType: p.dtype, Shape: p.shape, View: p.view, Fill: p.fill}
		m.addScales(name, &w)
		return w, nil
	}
	v, err := m.view(name)
	if err != nil {
		if errors.Is(err, safetensors.ErrNotFound) {
			return nn.Weight{}, fmt.Errorf("%w: %w", nn.ErrMissing, err)
		}
		return nn.Weight{}, err
	}
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return nn.Weight{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	w, err := weightOf(v, d, withinRank(v.Shape), !m.made)
	if v.InPlace() {
		w.View = v
	}
	m.addScales(name, &w)
	return w, err
}

// weightOf returns the weight whose bytes are those of a view. A view that is not in place is read
// when the bytes are requested, or now and once if keep is true.
func weightOf(v *safetensors.View, d tensor.DType, shape []int, keep bool) (nn.Weight, error) {
	w := nn.Weight{DType: d, Shape: shape}
	if !keep && !v.InPlace() {
		w.Fill = readView(v)
		return w, nil
	}
	data := v.Bytes()
	if data == nil && v.Len() > 0 { // reading failed; WithBytes returns the reason
		return w, v.WithBytes(func([]byte) error { return nil })
	}
	w.Source = weights.Data{Bytes: data, Keep: v}
	return w, nil
}

// readView returns a Fill function that passes the bytes of a view to put in pieces.
func readView(v *safetensors.View) func(put func(int, []byte) error) error {
	return func(put func(int, []byte) error) error {
		piece := make([]byte, min(v.Len(), 1<<20))
		for at := 0; at < v.Len(); at += len(piece) {
			piece = piece[:min(len(piece), v.Len()-at)]
			if n, err := v.ReadAt(piece, int64(at)); n < len(piece) {
				return err
			}
			if err := put(at, piece); err != nil {
				return err
			}
		}
		return nil
	}
}

// withinRank merges the last axes of a shape until it has at most ir.MaxRank.
func withinRank(shape []int) []int {
	if len(shape) <= ir.MaxRank {
		return shape
	}
	merged := slices.Clone(shape[:ir.MaxRank])
	for _, n := range shape[ir.MaxRank:] {
		merged[ir.MaxRank-1] *= n
	}
	return merged
}

func (m *Model) view(name string) (*safetensors.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.kept[name]; v != nil {
		return v, nil
	}
	v, err := m.set.Lookup(name)
	if err == nil && !v.InPlace() {
		if m.kept == nil {
			m.kept = map[string]*safetensors.View{}
		}
		m.kept[name] = v
	}
	return v, err
}

// Parameters returns the number of elements of all tensors that the model reads.
func (m *Model) Parameters() int {
	n := 0
	for _, name := range m.used {
		if w, err := m.Weight(name); err == nil && !m.isScale(name) {
			p := 1
			for _, d := range w.Shape {
				p *= d
			}
			n += p
		}
	}
	return n
}

// isScale reports whether a tensor is derived from the scale stored with a weight.
func (m *Model) isScale(name string) bool {
	weight, ok := strings.CutSuffix(name, nn.ScaleSuffix)
	return ok && m.converted[m.inFile(weight)+nn.ScaleSuffix] != nil
}

// Close unmaps the weights. No executable that reads them may run afterwards.
func (m *Model) Close() error { return m.set.Close() }
