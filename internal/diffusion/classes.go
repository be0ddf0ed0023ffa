package diffusion

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
)

// transformerOf returns the class of a pipeline's transformer. It compares the beginnings of
// the class names: a Flux2KleinPipeline has a Flux2Transformer2DModel. It returns "" if no
// family matches.
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

// checkClasses checks that the classes in model_index.json agree with each other and with the
// parts on disk. Without it, a folder assembled from two models would silently use wrong
// templates and scales. Errors: ErrPipeline.
func (p *Pipeline) checkClasses() error {
	index := p.files.Path(IndexFile)
	want, found := transformerOf(p.Class), p.Parts[Transformer].Class
	if want != "" && found != "" && found != want {
		return fmt.Errorf("diffusion: %w: %s: %s lists the transformer as %s, expected %s", ErrPipeline, index, p.Class, found, want)
	}
	for _, name := range []string{Transformer, VAE} {
		part := p.Parts[name]
		raw, err := os.ReadFile(filepath.Join(part.Dir, "config.json"))
		if !part.There || err != nil { // reported when the part is read
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
