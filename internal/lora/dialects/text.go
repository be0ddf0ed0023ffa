package dialects

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// OpenText opens an adapter of a language model: a GGUF file as [ReadGGUF] does, layers
// lora_a and lora_b as [ReadPlain] does, or a folder as [lora.Load] does. It detects the
// form by the contents of the files.
func OpenText(path string, m *model.Model) (*lora.Adapter, error) {
	a, err := lora.Load(path)
	if err == nil && !arePlain(a.Names()) {
		return a, nil
	}
	if err == nil {
		if err := a.Close(); err != nil {
			return nil, err
		}
		if a, err = ReadPlain(a.Source.Path, m); err == nil {
			a.Dir = path
		}
		return a, err
	}
	if a, ok, err := openForeign(path, m); ok {
		return a, err
	}
	return nil, err
}

// Opener returns a function that opens adapters of m in other forms than a folder of PEFT, for
// [lora.RegistryOptions].
func Opener(m *model.Model) func(path string, names []string) (*lora.Adapter, bool, error) {
	return func(path string, names []string) (*lora.Adapter, bool, error) {
		if names != nil && !arePlain(names) {
			return nil, false, nil
		}
		return openForeign(path, m)
	}
}

// openForeign opens an adapter in another form than a folder of PEFT. ok is false if path is such a
// folder or does not exist.
func openForeign(path string, m *model.Model) (a *lora.Adapter, ok bool, err error) {
	file, err := adapterFile(path)
	switch {
	case err != nil:
		return nil, true, err
	case lora.IsMLX(path):
		a, err = lora.Load(path)
	case file == "":
		return nil, false, nil
	case gguf.IsFile(file):
		a, err = ReadGGUF(file, m)
	case isPlain(file):
		a, err = ReadPlain(file, m)
	case file == path:
		err = fmt.Errorf("lora: adapter %s: %w: found a file, expected a folder with %s, a GGUF adapter, or a file of layers .lora_a.weight and .lora_b.weight", path, lora.ErrUnsupported, lora.ConfigFile)
	default:
		return nil, false, nil
	}
	if a != nil {
		a.Dir = path
	}
	return a, true, err
}

// IsText reports whether path is an adapter of a language model in a form that only [OpenText]
// reads: MLX, GGUF or layers lora_a and lora_b.
func IsText(path string) bool {
	file, err := adapterFile(path)
	return lora.IsMLX(path) || err == nil && file != "" && (gguf.IsFile(file) || isPlain(file))
}

// Detect reports whether path is an adapter as for [IsText]. If it is not, and a folder of PEFT,
// Detect returns the adapter, so that its files are read once.
func Detect(path string) (a *lora.Adapter, text bool, err error) {
	if _, err := os.Stat(filepath.Join(path, lora.MLXWeightsFile)); err == nil && lora.IsMLX(path) {
		return nil, true, nil
	}
	if a, err = openPEFT(path); a == nil && err == nil {
		return nil, IsText(path), nil
	}
	if err != nil || !arePlain(a.Names()) {
		return a, false, err
	}
	return nil, true, a.Close()
}

// adapterFile returns the file with the tensors of an adapter: path itself, or the file in a
// folder. It returns nothing for a folder without a known file.
func adapterFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", nil // opening it as a folder reports this
	}
	if !info.IsDir() {
		return path, nil
	}
	for _, name := range []string{lora.WeightsFile, lora.TorchWeightsFile, lora.MLXWeightsFile} {
		file := filepath.Join(path, name)
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return file, nil
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", nil
	}
	var found []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".gguf") {
			found = append(found, filepath.Join(path, e.Name()))
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("lora: adapter %s: found %d GGUF files, expected one; name the file", path, len(found))
}

// build returns the adapter of the pieces, with a configuration that has their ranks and scales.
func (f *file) build(pieces []piece) (*lora.Adapter, error) {
	pieces = f.once(pieces)
	if err := f.err(); err != nil {
		return nil, err
	}
	if len(pieces) == 0 {
		return nil, fmt.Errorf("lora: adapter %s: %w: the file has no tensors", f.path, lora.ErrMissing)
	}
	c, err := configOf(pieces)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", f.path, err)
	}
	c.TargetModules.Names, c.ExcludeModules.Names = f.targets(pieces)
	return f.adapter(c, pieces)
}

// tensor32 returns a float32 tensor of two dimensions.
func tensor32(values []float32, rows, columns int) tensor.Tensor {
	t, _ := tensor.FromFloat32s(values, rows, columns) // the sizes match
	return t
}

// transpose returns the transpose of a matrix [rows, columns].
func transpose(values []float32, rows, columns int) []float32 {
	out := make([]float32, len(values))
	for i := range rows {
		for j := range columns {
			out[j*rows+i] = values[i*columns+j]
		}
	}
	return out
}
