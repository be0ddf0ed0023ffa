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

// folders matches the subfolders that belong to a model: chat templates, and
// the modules that sentence-transformers adds, including their weights.
var folders = regexp.MustCompile(`^(additional_chat_templates|[0-9]+_[A-Za-z]+)$`)

// endings lists the extensions of files that contain weights.
var endings = []string{
	".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx", ".ot",
}

// CopyBeside copies the files of a model's folder that are not weights:
// configuration, tokenizer, chat templates, modules of sentence-transformers,
// license. It follows links, since the files of the Hugging Face cache are links.
// If config is not nil, it is written instead of the old ConfigFile. Files named in
// except are not copied. CopyBeside returns the names of the files.
func CopyBeside(from, to string, config []byte, except ...string) ([]string, error) {
	return copyBeside(from, to, config, func(name string) bool { return isWeights(name) || slices.Contains(except, name) })
}

// copyBeside omits the files for which skip returns true.
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
		strings.Contains(name, ".index.") && strings.HasSuffix(name, ".json") // with a variant: model.safetensors.index.fp16.json
}

// ConfigName returns the name in config.json of an element type that models
// compute in: F32, BF16 or F16. It is empty for other types; leave the key
// unchanged for these, because it names the type that weights are converted to
// when they are loaded.
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

// Removed is the value of a key that ChangeConfig removes.
var Removed = json.RawMessage("")

// ChangeConfig sets keys of the JSON object raw. Existing keys keep their
// order; new ones are appended, sorted. A key whose value is [Removed] is left out. A change of "dtype" applies to
// "torch_dtype" if the object has that key, the name in transformers 4. Without
// changes raw is returned unchanged.
func ChangeConfig(raw []byte, changes map[string]any) ([]byte, error) {
	if len(changes) == 0 {
		return raw, nil
	}
	values := map[string]json.RawMessage{}
	for key, value := range changes {
		text, ok := value.(json.RawMessage)
		if !ok {
			var err error
			if text, err = json.Marshal(value); err != nil {
				return nil, fmt.Errorf("%s: %w", ConfigFile, err)
			}
		}
		if key == "dtype" && bytes.Contains(raw, []byte(`"torch_dtype"`)) {
			key = "torch_dtype"
		}
		values[key] = text
	}
	var out bytes.Buffer
	member := func(key string, value []byte) error {
		if len(value) == 0 {
			return nil
		}
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

// object calls member for each member of a JSON object, in order.
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
		name, _ := key.(string) // always a string in a valid object
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
