package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

const (
	configFile     = "config.json"
	templateFolder = "additional_chat_templates"
)

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
	if names := map[tensor.DType]string{tensor.F32: `"float32"`, tensor.BF16: `"bfloat16"`, tensor.F16: `"float16"`}; d != tensor.Invalid {
		key := "dtype"
		if bytes.Contains(raw, []byte(`"torch_dtype"`)) {
			key = "torch_dtype" // as transformers 4 calls it
		}
		changes[key] = names[d]
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

// weightEndings are those of files that hold weights, or say where they are.
var weightEndings = []string{
	".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx", ".ot",
}

// copyModelFiles copies what stands beside the weights: configuration,
// tokenizer, chat templates, licence. Links are followed, as the files of the
// Hugging Face cache are links.
func copyModelFiles(from, to string, config []byte) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case info.IsDir() && e.Name() == templateFolder:
			if err = os.Mkdir(target, 0o777); err == nil {
				err = copyModelFiles(path, target, nil)
			}
		case !info.Mode().IsRegular(), strings.HasPrefix(e.Name(), "."), isWeights(e.Name()):
		case e.Name() == configFile:
			err = os.WriteFile(target, config, 0o666)
		default:
			err = copyFile(path, target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, raw, 0o666)
}

func isWeights(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(weightEndings, func(ending string) bool { return strings.HasSuffix(name, ending) })
}
