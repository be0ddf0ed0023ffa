// Package diffusion runs diffusers pipelines from a folder or the Hugging Face Hub. A
// pipeline consists of a transformer, text encoders, an autoencoder and a noise schedule.
// [Open] reads one; [Painter] generates images from prompts, with or without an adapter.
package diffusion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
)

// ErrPipeline is wrapped if a folder is not a pipeline, or a pipeline of an unsupported kind.
var ErrPipeline = errors.New("wrong pipeline")

// ErrPart is wrapped if a required part of a pipeline is missing.
var ErrPart = errors.New("missing part")

// Names of parts, which are also the names of their folders.
const (
	Transformer  = "transformer"
	VAE          = "vae"
	Scheduler    = "scheduler"
	TextEncoder  = "text_encoder"
	TextEncoder2 = "text_encoder_2"
	Tokenizer    = "tokenizer"
	Tokenizer2   = "tokenizer_2"
)

// parts lists all part names.
var parts = []string{Transformer, VAE, Scheduler, TextEncoder, TextEncoder2, Tokenizer, Tokenizer2}

// IndexFile lists the parts of a pipeline.
const IndexFile = "model_index.json"

// Pipeline is a model in the diffusers layout. It holds no open resources: callers open and
// close its parts one by one. Files on the Hub are downloaded when they are opened or read.
type Pipeline struct {
	Dir   string          // the folder, or the download folder
	Class string          // such as FluxPipeline; empty without IndexFile
	Parts map[string]Part // by name
	// Distilled reports that the transformer is distilled: it needs few steps and no
	// guidance.
	Distilled bool
	// Sigmas are the recommended noise levels before shifting, from 1 downwards. Nil means
	// evenly spaced levels.
	Sigmas []float64

	files  *hub.Tree
	single Single // the transformer, if it is a single file
	notes  *notes // nil until Notify
}

// Part is a part of a pipeline.
type Part struct {
	Class string // such as AutoencoderKL; empty without IndexFile
	Dir   string
	There bool // the folder exists, downloaded or not

	files  *hub.Tree // nil for a single file
	folder string    // in files
}

// Open reads model_index.json and finds the existing parts. A folder without that file is a
// pipeline if it has a folder called transformer, or if it is the transformer itself; so is
// the single file of a transformer (package single). Errors: ErrPipeline, I/O errors, and
// errors of OpenWith.
func Open(path string) (*Pipeline, error) { return OpenWith(path, Single{}) }

// open reads the pipeline in files. If needed is set, it must have a transformer.
func open(files *hub.Tree, needed bool) (*Pipeline, error) {
	p := &Pipeline{Dir: files.Dir, Parts: map[string]Part{}, files: files}
	if _, err := files.Fetch("", false); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(p.Dir, IndexFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = p.look()
	case err != nil:
		return nil, fmt.Errorf("diffusion: %w", err)
	default:
		if err := p.read(raw); err != nil {
			return nil, fmt.Errorf("diffusion: %w: %s: %w", ErrPipeline, files.Path(IndexFile), err)
		}
		if _, ok := p.Parts[Transformer]; !ok {
			err = fmt.Errorf("diffusion: %w: %s: %s has no transformer; it has %s; supported: pipelines of %s", ErrPipeline, files.Path(IndexFile), p.Class, p.list(), supported())
		}
		if err == nil {
			err = p.checkClasses()
		}
	}
	if !needed {
		return p, nil
	}
	if err == nil && p.Has(Transformer) { // every use of a pipeline starts with the transformer's config.json
		_, err = p.Folder(Transformer)
	}
	return p, err
}

// read parses model_index.json, which maps part names to [library, class] and contains
// settings.
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
		if part[1] != nil { // a null entry: an optional part
			p.add(name, name, *part[1])
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

// look finds the parts of a folder without model_index.json.
func (p *Pipeline) look() error {
	for _, name := range parts {
		if has, _ := p.files.Has(name); has {
			p.add(name, name, "")
		}
	}
	if _, ok := p.Parts[Transformer]; ok {
		return nil
	}
	c, err := model.ReadConfig(p.Dir)
	if errors.Is(err, model.ErrAdapter) {
		return fmt.Errorf("diffusion: %w", err)
	}
	if err == nil {
		if _, ok := c.Family.(dit.Transformer); ok {
			p.add(Transformer, "", c.Architecture)
			return nil
		}
	}
	return fmt.Errorf("diffusion: %w: %s has neither %s nor a folder called %s, expected a pipeline of diffusers", ErrPipeline, p.files, IndexFile, Transformer)
}

func (p *Pipeline) add(name, folder, class string) {
	has, known := p.files.Has(folder)
	p.Parts[name] = Part{Class: class, Dir: filepath.Join(p.Dir, folder), There: has || !known, files: p.files, folder: folder}
}

// Put sets a part of the pipeline to the folder that files represents.
func (p *Pipeline) Put(name string, files *hub.Tree) {
	p.Parts[name] = Part{Dir: files.Dir, There: true, files: files}
}

// Here returns a copy of the pipeline that does not use the Hub. Opening a part that is not
// on disk is an error.
func (p *Pipeline) Here() *Pipeline {
	own := *p
	own.Parts = maps.Clone(p.Parts)
	for name, part := range own.Parts {
		if part.files != nil {
			part.files = part.files.CacheOnly()
			own.Parts[name] = part
		}
	}
	return &own
}

// list returns the names of the existing parts.
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

// Has reports whether a part exists.
func (p *Pipeline) Has(name string) bool { return p.Parts[name].There }

// Folder returns the folder of a part, with its configuration or tokenizer but perhaps
// without weights. Errors: ErrPart if it is missing, and errors of hub.Tree.Fetch.
func (p *Pipeline) Folder(name string) (string, error) { return p.fetch(name, false) }

// Weights returns the folder of a part including its weights. Errors are the same as for
// Folder.
func (p *Pipeline) Weights(name string) (string, error) { return p.fetch(name, true) }

func (p *Pipeline) fetch(name string, weights bool) (string, error) {
	part, listed := p.Parts[name]
	switch {
	case part.There && part.files != nil:
		return part.files.Fetch(part.folder, weights)
	case part.There:
		return part.Dir, nil
	case listed:
		return "", fmt.Errorf("diffusion: %w: %s lists %s as %s, and there is no folder %s", ErrPart, IndexFile, name, part.Class, p.files.Path(part.folder))
	}
	if p.unlisted(name) {
		return "", fmt.Errorf("diffusion: %w: %s does not list %s, which is there", ErrPart, p.files.Path(IndexFile), p.files.Path(name))
	}
	return "", fmt.Errorf("diffusion: %w: %s has no %s; it has %s", ErrPart, p, name, p.list())
}

// unlisted reports whether a folder exists that model_index.json does not list.
func (p *Pipeline) unlisted(name string) bool {
	if p.Class == "" || p.files == nil {
		return false
	}
	_, listed := p.Parts[name]
	has, _ := p.files.Has(name)
	return has && !listed
}

// String returns the display name of the pipeline: its folder, file or Hub name.
func (p *Pipeline) String() string {
	if p.files == nil {
		return p.Dir
	}
	return p.files.String()
}

// Schedule reads the noise schedule. A pipeline without one has unshifted levels. Errors:
// ErrPart, and errors of flow.Open.
func (p *Pipeline) Schedule() (*flow.Schedule, error) {
	if _, ok := p.Parts[Scheduler]; !ok && !p.unlisted(Scheduler) {
		return flow.Parse([]byte("{}"))
	}
	dir, err := p.Folder(Scheduler)
	if err != nil {
		return nil, err
	}
	return flow.Open(dir)
}
