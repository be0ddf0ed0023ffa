package dit

import (
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Family describes an architecture of diffusion transformers. Each is registered in the file
// of its architecture.
type Family struct {
	Class string // of diffusers
	Read  func(*model.Config, *model.Fields) model.Family
	// Targets lists the layers that adapters target by default, by the ends of their names.
	Targets []string
	// Marks lists tensors that together identify a single file of the transformer. Original
	// does so for the names of the first release, if they differ.
	Marks, Original []string
	// Config infers a config.json from the tensors of a single file. It takes settings that
	// shapes do not determine from the published models.
	Config func(Shapes) map[string]any
}

// Shapes looks up the tensors of a single file by their names in diffusers.
type Shapes interface {
	Has(name string) bool
	// Dim returns the length of an axis.
	Dim(name string, axis int) int
	// Count returns the number of blocks: the consecutive numbers in pattern for which a
	// tensor exists.
	Count(pattern string) int
	// Ratio returns a/b. If it is not an integer, the setting called key cannot be inferred.
	Ratio(key string, a, b int) int
	// Axes returns the axes of the rotary embedding of published models. If they do not add
	// up to the size of a head, the setting called key cannot be inferred.
	Axes(key string, head int, axes ...int) []int
}

// projections are the attention projections of most transformers, which trainers of diffusion
// models target by default.
var projections = []string{"to_k", "to_q", "to_v", "to_out.0"}

var families []Family

func register(f Family) {
	families = append(families, f)
	model.Register(f.Class, model.Architecture{Read: f.Read})
}

// Families returns the supported architectures.
func Families() []Family { return families }

// Targets returns the layers of a transformer that adapters target by default.
func Targets(m *model.Model) (names []string) {
	i := slices.IndexFunc(families, func(f Family) bool { return f.Class == m.Config.Architecture })
	if i < 0 {
		return nil
	}
	for _, name := range families[i].Targets {
		if slices.ContainsFunc(m.Modules(), func(m nn.Module) bool { return strings.HasSuffix(m.Name, "."+name) }) {
			names = append(names, name)
		}
	}
	return names
}
