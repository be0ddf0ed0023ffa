package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// ConfigFile is the configuration in a model's folder.
const ConfigFile = "config.json"

// folders are those that belong to a model: of chat templates, and of what
// sentence-transformers puts behind it, weights included.
var folders = regexp.MustCompile(`^(additional_chat_templates|[0-9]+_[A-Za-z]+)$`)

// endings are those of files that hold weights.
var endings = []string{
	".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx", ".ot",
}

// CopyBeside copies what stands beside the weights in a model's folder:
// configuration, tokenizer, chat templates, what sentence-transformers has behind
// the model, licence. Links are followed, as the
// files of the Hugging Face cache are links. Where config is not nil, it is
// written in the place of the old ConfigFile. It returns the names of the files.
func CopyBeside(from, to string, config []byte) ([]string, error) {
	return copyBeside(from, to, config, isWeights)
}

// copyBeside leaves out the files that skip names.
func copyBeside(from, to string, config []byte, skip func(string) bool) ([]string, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		path, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, err
		case info.IsDir() && folders.MatchString(e.Name()):
			if err := os.Mkdir(target, 0o777); err != nil {
				return nil, err
			}
			inside, err := copyBeside(path, target, nil, func(string) bool { return false })
			if err != nil {
				return nil, err
			}
			for _, name := range inside {
				names = append(names, e.Name()+"/"+name)
			}
			continue
		case !info.Mode().IsRegular(), strings.HasPrefix(e.Name(), "."), skip(e.Name()):
			continue
		case e.Name() == ConfigFile && config != nil:
			err = os.WriteFile(target, config, 0o666)
		default:
			err = copyFile(path, target)
		}
		if err != nil {
			return nil, err
		}
		names = append(names, e.Name())
	}
	return names, nil
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
	return slices.ContainsFunc(endings, func(ending string) bool { return strings.HasSuffix(name, ending) }) ||
		strings.Contains(name, ".index.") && strings.HasSuffix(name, ".json") // of a variant: model.safetensors.index.fp16.json
}

// ConfigName is what config.json calls an element type that models compute in:
// F32, BF16 and F16. It is empty for others, with which that key stays as it
// is: it says what weights are converted to when they are loaded.
func ConfigName(d tensor.DType) string {
	switch d {
	case tensor.F32:
		return "float32"
	case tensor.BF16:
		return "bfloat16"
	case tensor.F16:
		return "float16"
	}
	return ""
}

// ChangeConfig sets keys of the JSON object that raw is; the order of its keys
// stays, new ones are added at the end, sorted. A change of "dtype" goes to
// "torch_dtype" where the object has that one, as transformers 4 calls it.
// Without changes raw comes back as it is.
func ChangeConfig(raw []byte, changes map[string]any) ([]byte, error) {
	if len(changes) == 0 {
		return raw, nil
	}
	values := map[string]json.RawMessage{}
	for key, value := range changes {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ConfigFile, err)
		}
		if key == "dtype" && bytes.Contains(raw, []byte(`"torch_dtype"`)) {
			key = "torch_dtype"
		}
		values[key] = text
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
	err := object(raw, func(key string, value json.RawMessage) error {
		if v, ok := values[key]; ok {
			value, done[key] = v, true
		}
		return member(key, value)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigFile, err)
	}
	var added []string
	for key := range values {
		if !done[key] {
			added = append(added, key)
		}
	}
	slices.Sort(added)
	for _, key := range added {
		if err := member(key, values[key]); err != nil {
			return nil, err
		}
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte("{"+out.String()+"}"), "", "  "); err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigFile, err)
	}
	pretty.WriteByte('\n')
	return pretty.Bytes(), nil
}

// object calls member for all members of a JSON object, in their order.
func object(text []byte, member func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("found %.40q, expected a JSON object", text)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		name, _ := key.(string) // as a decoder has checked
		if err := member(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("the object ends before the text does")
	}
	return nil
}
