package merge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const templateFolder = "additional_chat_templates"

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
