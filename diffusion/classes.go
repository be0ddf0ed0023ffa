package diffusion

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/model"
)

// transformersOf are the transformers of pipelines, by how the names of these begin.
var transformersOf = []struct{ pipeline, transformer string }{
	{"QwenImage21", "QwenImage21Transformer2DModel"}, // before its prefix
	{"QwenImage", "QwenImageTransformer2DModel"},
	{"Flux2", "Flux2Transformer2DModel"},
	{"Flux", "FluxTransformer2DModel"},
	{"ZImage", "ZImageTransformer2DModel"},
	{"Kandinsky5", "Kandinsky5Transformer3DModel"},
}

// checkClasses compares what model_index.json says with itself and with the parts that are
// there: a folder that was put together of two models would be read with wrong templates and
// scales, and say nothing. Errors: ErrPipeline.
func (p *Pipeline) checkClasses() error {
	index := p.files.Path(IndexFile)
	for _, t := range transformersOf {
		if !strings.HasPrefix(p.Class, t.pipeline) {
			continue
		}
		if found := p.Parts[Transformer].Class; found != "" && found != t.transformer {
			return fmt.Errorf("diffusion: %w: %s: %s lists the transformer as %s, expected %s", ErrPipeline, index, p.Class, found, t.transformer)
		}
		break
	}
	for _, name := range []string{Transformer, VAE} {
		part := p.Parts[name]
		raw, err := os.ReadFile(filepath.Join(part.Dir, "config.json"))
		if !part.There || err != nil { // which is said where it is read
			continue
		}
		f, err := model.ParseFields(raw)
		if err != nil {
			continue
		}
		if found := f.String("_class_name", part.Class); part.Class != "" && found != part.Class {
			return fmt.Errorf("diffusion: %w: %s lists %s as %s, and %s is a %s", ErrPipeline, index, name, part.Class, filepath.Join(part.Dir, "config.json"), found)
		}
	}
	return nil
}
