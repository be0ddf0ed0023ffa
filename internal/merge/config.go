package merge

import (
	"encoding/json"
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
	if d != tensor.Invalid && (m.Quantization().Float8 || m.Quantization().Tool != "") {
		if err := unquantized(raw, changes); err != nil {
			return nil, err
		}
	}
	if name := weights.ConfigName(d); name != "" {
		changes["dtype"] = name
	}
	return weights.ChangeConfig(raw, changes)
}

// unquantized adds the changes that remove what config.json says about quantised weights, in
// multimodal models also within text_config.
func unquantized(raw []byte, changes map[string]any) error {
	const key, text = "quantization_config", "text_config"
	changes[key] = weights.Removed
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil || keys[text] == nil {
		return err
	}
	inner, err := weights.ChangeConfig(keys[text], map[string]any{key: weights.Removed})
	changes[text] = json.RawMessage(inner)
	return err
}
