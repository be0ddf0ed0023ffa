package merge

import (
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// mergedConfig returns the model's config.json, changed for the merged model; all
// other keys and their order are kept. For a classifier it also names the
// architecture and the classes.
func mergedConfig(m *model.Model, d tensor.DType, untied bool) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(m.Dir, weights.ConfigFile))
	if err != nil {
		return nil, err
	}
	changes := map[string]any{}
	if m.Config.Part == model.Classifier {
		changes = m.Config.Classes.Keys()
		changes["architectures"] = []string{m.Config.ClassifierArchitecture()}
	}
	if untied {
		changes["tie_word_embeddings"] = false
	}
	if name := weights.ConfigName(d); name != "" {
		changes["dtype"] = name
	}
	return weights.ChangeConfig(raw, changes)
}
