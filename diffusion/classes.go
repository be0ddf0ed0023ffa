package diffusion

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/model"
)

// transformerOf is the class of the transformer of a pipeline, by how both names begin: a
// Flux2KleinPipeline has a Flux2Transformer2DModel. "" is one that no family is of.
func transformerOf(pipeline string) (class string) {
	longest := 0
	for c := range families {
		name, _, _ := strings.Cut(c, "Transformer")
		if strings.HasPrefix(pipeline, name) && len(name) > longest { // QwenImage21, not QwenImage
			class, longest = c, len(name)
		}
	}
	return class
}

// checkClasses compares what model_index.json says with itself and with the parts that are
// there: a folder that was put together of two models would be read with wrong templates and
// scales, and say nothing. Errors: ErrPipeline.
func (p *Pipeline) checkClasses() error {
	index := p.files.Path(IndexFile)
	want, found := transformerOf(p.Class), p.Parts[Transformer].Class
	if want != "" && found != "" && found != want {
		return fmt.Errorf("diffusion: %w: %s: %s lists the transformer as %s, expected %s", ErrPipeline, index, p.Class, found, want)
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
