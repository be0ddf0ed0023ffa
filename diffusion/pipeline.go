// Package diffusion runs pipelines of diffusers: folders with a transformer, the encoders
// of its texts, the autoencoder of its pictures and a schedule of noise. It draws pictures
// by prompts, and shows what an adapter makes of them.
package diffusion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/model"
)

// ErrPipeline is wrapped where a folder is no pipeline, or one of another kind than is
// supported.
var ErrPipeline = errors.New("wrong pipeline")

// ErrPart is wrapped where a pipeline lacks a part that something needs.
var ErrPart = errors.New("missing part")

// The names of parts: the folders in which they lie.
const (
	Transformer  = "transformer"
	VAE          = "vae"
	Scheduler    = "scheduler"
	TextEncoder  = "text_encoder"
	TextEncoder2 = "text_encoder_2"
	Tokenizer    = "tokenizer"
	Tokenizer2   = "tokenizer_2"
)

// parts are all of them.
var parts = []string{Transformer, VAE, Scheduler, TextEncoder, TextEncoder2, Tokenizer, Tokenizer2}

// IndexFile lists the parts of a pipeline.
const IndexFile = "model_index.json"

// Pipeline is a folder in the layout of diffusers. Nothing of it is open: its parts are
// opened one by one, and closed by whoever opened them.
type Pipeline struct {
	Dir   string
	Class string          // such as FluxPipeline; "" where there is no IndexFile
	Parts map[string]Part // by name
	// Distilled says that the transformer draws in few steps and without guidance.
	Distilled bool
	// Sigmas are the noise levels that its author draws with, from 1 downwards, before they
	// are shifted; nil where they are even.
	Sigmas []float64

	single Single // the transformer, where it is no folder
}

// Part is a part of a pipeline.
type Part struct {
	Class string // such as AutoencoderKL; "" where there is no IndexFile
	Dir   string
	There bool // the folder is there
}

// Open reads model_index.json and looks which parts are there. A folder without the file is
// taken for a pipeline if it has a folder called transformer, or is the transformer itself;
// so is a file of a transformer (package single). Errors: ErrPipeline, those of files and of
// OpenWith.
func Open(path string) (*Pipeline, error) { return OpenWith(path, Single{}) }

// open reads what a folder has. needed says that it must have a transformer.
func open(dir string, needed bool) (*Pipeline, error) {
	p := &Pipeline{Dir: dir, Parts: map[string]Part{}}
	raw, err := os.ReadFile(filepath.Join(dir, IndexFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = p.look()
	case err != nil:
		return nil, fmt.Errorf("diffusion: %w", err)
	default:
		if err := p.read(raw); err != nil {
			return nil, fmt.Errorf("diffusion: %w: %s: %w", ErrPipeline, filepath.Join(dir, IndexFile), err)
		}
		if _, ok := p.Parts[Transformer]; !ok {
			err = fmt.Errorf("diffusion: %w: %s: %s has no transformer; it has %s", ErrPipeline, filepath.Join(dir, IndexFile), p.Class, p.list())
		}
	}
	if err != nil && needed {
		return nil, err
	}
	return p, nil
}

// read reads model_index.json: names of parts with [library, class], and settings.
func (p *Pipeline) read(raw []byte) error {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return err
	}
	if err := setting(entries, "_class_name", &p.Class); err != nil {
		return err
	}
	if err := setting(entries, "is_distilled", &p.Distilled); err != nil {
		return err
	}
	if err := setting(entries, "sample_sigmas", &p.Sigmas); err != nil {
		return err
	}
	for _, x := range p.Sigmas {
		if !(x > 0 && x <= 1) {
			return fmt.Errorf("sample_sigmas: found %v, expected numbers above 0 and up to 1", x)
		}
	}
	for name, raw := range entries {
		var part []*string
		if strings.HasPrefix(name, "_") || json.Unmarshal(raw, &part) != nil || part == nil {
			continue // a setting
		}
		if len(part) != 2 {
			return fmt.Errorf("%s: found %s, expected [library, class]", name, raw)
		}
		if part[1] != nil { // a pipeline may be without it
			p.add(name, filepath.Join(p.Dir, name), *part[1])
		}
	}
	return nil
}

func setting(entries map[string]json.RawMessage, key string, v any) error {
	if raw, ok := entries[key]; ok && json.Unmarshal(raw, v) != nil {
		return fmt.Errorf("%s: found %s", key, raw)
	}
	return nil
}

// look finds the parts of a folder that does not list them.
func (p *Pipeline) look() error {
	for _, name := range parts {
		if dir := filepath.Join(p.Dir, name); isDir(dir) {
			p.add(name, dir, "")
		}
	}
	if _, ok := p.Parts[Transformer]; ok {
		return nil
	}
	if c, err := model.ReadConfig(p.Dir); err == nil {
		if _, ok := c.Family.(dit.Transformer); ok {
			p.add(Transformer, p.Dir, c.Architecture)
			return nil
		}
	}
	return fmt.Errorf("diffusion: %w: %s has neither %s nor a folder called %s, expected a pipeline of diffusers", ErrPipeline, p.Dir, IndexFile, Transformer)
}

func (p *Pipeline) add(name, dir, class string) {
	p.Parts[name] = Part{Class: class, Dir: dir, There: isDir(dir)}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// list names the parts that the pipeline has.
func (p *Pipeline) list() string {
	var names []string
	for name, part := range p.Parts {
		if part.There {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Has reports whether a part is there.
func (p *Pipeline) Has(name string) bool { return p.Parts[name].There }

// Folder is where a part lies. Errors: ErrPart where it is not there.
func (p *Pipeline) Folder(name string) (string, error) {
	part, listed := p.Parts[name]
	switch {
	case part.There:
		return part.Dir, nil
	case listed:
		return "", fmt.Errorf("diffusion: %w: %s lists %s as %s, and there is no folder %s", ErrPart, IndexFile, name, part.Class, part.Dir)
	}
	return "", fmt.Errorf("diffusion: %w: %s has no %s%s; it has %s", ErrPart, p.Dir, name, suggest.DidYouMean(name, parts), p.list())
}

// OpenTransformer opens the transformer, and says how it is fed. Errors: ErrPart, ErrPipeline
// where it is of no architecture that draws, those of model.Open.
func (p *Pipeline) OpenTransformer() (*model.Model, dit.Transformer, error) {
	dir, err := p.Folder(Transformer)
	if err != nil {
		return nil, nil, err
	}
	open := model.Open
	if p.single.File != "" {
		open = p.single.open
	}
	m, err := open(dir)
	if err != nil {
		return nil, nil, err
	}
	t, ok := m.Config.Family.(dit.Transformer)
	if !ok {
		_ = m.Close()
		return nil, nil, fmt.Errorf("diffusion: %w: %s is a %s, expected a diffusion transformer", ErrPipeline, dir, m.Config.Architecture)
	}
	return m, t, nil
}

// Schedule reads the schedule of noise: levels that are not shifted where the pipeline lists
// none. Errors: ErrPart, those of flow.Open.
func (p *Pipeline) Schedule() (*flow.Schedule, error) {
	if _, ok := p.Parts[Scheduler]; !ok {
		return flow.Parse([]byte("{}"))
	}
	dir, err := p.Folder(Scheduler)
	if err != nil {
		return nil, err
	}
	return flow.Open(dir)
}
