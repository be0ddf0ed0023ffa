package diffusion

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/diffusion/single"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
)

// Single describes a transformer in a single file. See package single.
type Single struct {
	File   string // empty if there is none
	Config string // its config.json; empty means the one next to the file, or inferred from tensor shapes
}

func (s Single) open(string) (*model.Model, error) { return single.Open(s.File, s.Config) }

// OpenWith opens a pipeline like Open, with the transformer of a single file instead of the
// pipeline's, which may be missing. An empty path means a pipeline with no other part.
// Errors: ErrPipeline if the pipeline is for another class of transformer, and errors of Open
// and single.Config.
func OpenWith(path string, s Single) (*Pipeline, error) {
	files := (*hub.Tree)(nil)
	if path != "" {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("diffusion: %w", err)
		case info.IsDir():
			files = hub.Local(path)
		case s.File != "":
			return nil, fmt.Errorf("diffusion: %w: %s is a file and so is the transformer %s, expected a folder with the other parts", ErrPipeline, path, s.File)
		default:
			s.File = path
		}
	}
	return openTree(files, s)
}

// Find opens a pipeline like OpenWith, on disk or on the Hub: path is a folder, a file,
// owner/name[@revision] or owner/name[@revision]/file.safetensors, and s.File is a local file
// or one on the Hub. Files on the Hub are downloaded when they are read; ctx cancels
// downloads. Errors: errors of OpenWith, hub.Open and hub.File.
func Find(ctx context.Context, path string, s Single, o hub.Options) (*Pipeline, error) {
	var err error
	if s.File != "" {
		if s.File, err = hub.File(ctx, s.File, o); err != nil {
			return nil, err
		}
	}
	if info, err := os.Stat(path); path == "" || err == nil && !info.IsDir() {
		return OpenWith(path, s)
	}
	if filepath.Ext(path) == fileEnding && s.File == "" {
		if path, err = hub.File(ctx, path, o); err != nil {
			return nil, err
		}
		return OpenWith(path, s)
	}
	files, err := hub.Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	return openTree(files, s)
}

// fileEnding is the extension of single-file transformers.
const fileEnding = ".safetensors"

// openTree opens the pipeline in files, which may be nil, with the single-file transformer s.
func openTree(files *hub.Tree, s Single) (p *Pipeline, err error) {
	if files == nil {
		p = &Pipeline{Dir: s.File, Parts: map[string]Part{}}
	} else if p, err = open(files, s.File == ""); err != nil {
		return nil, err
	}
	if s.File == "" {
		return p, nil
	}
	return p, p.put(s)
}

// IsSingle reports whether the transformer is in a single file.
func (p *Pipeline) IsSingle() bool { return p.single.File != "" }

// put sets the transformer of the pipeline to a single file.
func (p *Pipeline) put(s Single) error {
	raw, err := single.Config(s.File, s.Config)
	if err != nil {
		return fmt.Errorf("diffusion: %w", err)
	}
	f, err := model.ParseFields(raw)
	if err != nil {
		return fmt.Errorf("diffusion: %s: %w", s.File, err)
	}
	class := f.String("_class_name", "")
	if own := p.Parts[Transformer].Class; own != "" && own != class {
		return fmt.Errorf("diffusion: %w: %s has a %s, expected a %s for %s", ErrPipeline, s.File, class, own, p)
	}
	p.single = s
	p.Parts[Transformer] = Part{Class: class, Dir: s.File, There: true}
	return nil
}

// transformerConfig returns the config.json of the transformer.
func (p *Pipeline) transformerConfig() ([]byte, error) {
	if p.single.File != "" {
		return single.Config(p.single.File, p.single.Config)
	}
	return os.ReadFile(filepath.Join(p.Parts[Transformer].Dir, "config.json"))
}
