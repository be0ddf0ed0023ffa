package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/tensor"
)

const configFile = "config.json"

// configNames are the element types of weights as config.json calls them.
var configNames = map[tensor.DType]string{tensor.F32: "float32", tensor.BF16: "bfloat16", tensor.F16: "float16"}

// mergedConfig is the model's config.json for the merged model; every other
// key, and their order, stays.
func mergedConfig(dir string, d tensor.DType, untied bool) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	changes := map[string]string{}
	if untied {
		changes["tie_word_embeddings"] = "false"
	}
	if name, ok := configNames[d]; ok {
		key := "dtype"
		if bytes.Contains(raw, []byte(`"torch_dtype"`)) {
			key = "torch_dtype" // as transformers 4 calls it
		}
		changes[key] = `"` + name + `"`
	}
	if len(changes) == 0 {
		return raw, nil
	}
	return changeJSON(raw, changes)
}

// changeJSON sets keys of a JSON object; new ones are added at the end.
func changeJSON(raw []byte, changes map[string]string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%s is not a JSON object", configFile)
	}
	var out bytes.Buffer
	member := func(key string, value []byte) error {
		name, err := json.Marshal(key)
		if err != nil {
			return err
		}
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "%s:%s", name, value)
		return nil
	}
	done := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", configFile, err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", configFile, err)
		}
		name, _ := key.(string)
		if v, ok := changes[name]; ok {
			value, done[name] = json.RawMessage(v), true
		}
		if err := member(name, value); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{"dtype", "torch_dtype", "tie_word_embeddings"} {
		if v, ok := changes[key]; ok && !done[key] {
			if err := member(key, []byte(v)); err != nil {
				return nil, err
			}
		}
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte("{"+out.String()+"}"), "", "  "); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	pretty.WriteByte('\n')
	return pretty.Bytes(), nil
}
