package merge

import (
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/weights"
)

// mergedConfig is the model's config.json for the merged model; every other
// key, and their order, stays. That of a classifier says so, and names its classes.
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
