package diffusion

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/diffusion/single"
	"github.com/lorafuse/lorafuse/model"
)

// Single is a transformer in a single file, see package single.
type Single struct {
	File   string // "": there is none
	Config string // its config.json; "": the one beside the file, or what shapes say
}

func (s Single) open(string) (*model.Model, error) { return single.Open(s.File, s.Config) }

// OpenWith is Open with the transformer of a single file in the place of the pipeline's, which
// need not have one; path "" stands for a pipeline of nothing else. Errors: ErrPipeline where
// the pipeline is for transformers of another class, those of Open and of single.Config.
func OpenWith(path string, s Single) (*Pipeline, error) {
	p := &Pipeline{Dir: path, Parts: map[string]Part{}}
	if path != "" {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("diffusion: %w", err)
		case info.IsDir():
			if p, err = open(path, s.File == ""); err != nil {
				return nil, err
			}
		case s.File != "":
			return nil, fmt.Errorf("diffusion: %w: %s is a file and so is the transformer %s, expected a folder with the other parts", ErrPipeline, path, s.File)
		default:
			s.File = path
		}
	}
	if s.File == "" {
		return p, nil
	}
	if p.Dir == "" {
		p.Dir = s.File
	}
	return p, p.put(s)
}

// put takes the transformer of a file for the pipeline's.
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
		return fmt.Errorf("diffusion: %w: %s has a %s, expected a %s for %s", ErrPipeline, s.File, class, own, p.Dir)
	}
	p.single = s
	p.Parts[Transformer] = Part{Class: class, Dir: s.File, There: true}
	return nil
}

// transformerConfig is the config.json of the transformer.
func (p *Pipeline) transformerConfig() ([]byte, error) {
	if p.single.File != "" {
		return single.Config(p.single.File, p.single.Config)
	}
	return os.ReadFile(filepath.Join(p.Parts[Transformer].Dir, "config.json"))
}
