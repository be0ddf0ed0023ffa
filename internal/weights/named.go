package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/safetensors"
)

// AdapterFile is the file name of an adapter's weights.
const AdapterFile = "adapter_model.safetensors"

// The file names of a model and an adapter written by torch.save, as used by
// transformers and PEFT.
const (
	TorchModelFile   = "pytorch_model.bin"
	TorchModelIndex  = "pytorch_model.bin.index.json"
	TorchAdapterFile = "adapter_model.bin"
)

// OpenModel opens the model in a folder as transformers does. It opens the
// safetensors file of the usual name or else the shards of its index. If neither
// exists, it opens TorchModelFile or the shards of TorchModelIndex, and Origin
// reports this. Other files are ignored. OpenModel fails as Open does, with
// ErrNoWeights if none of these files exists. In a folder made for a GGUF file it opens
// the tensors of that file.
func OpenModel(dir string) (*Set, error) {
	if index := filepath.Join(dir, GGUFIndex); fileExists(index) {
		return openGGUF(index)
	}
	return openNamed(dir, safetensors.ModelFile, safetensors.ModelIndex, TorchModelFile, TorchModelIndex)
}

// OpenDiffusion opens a model of a diffusers pipeline, like OpenModel but with the file
// names of diffusers.
func OpenDiffusion(dir string) (*Set, error) {
	const stem = "diffusion_pytorch_model"
	return openNamed(dir, stem+".safetensors", stem+".safetensors.index.json", stem+".bin", stem+".bin.index.json")
}

// OpenAdapter opens the adapter in a folder as PEFT does: AdapterFile or, only if
// that does not exist, not even as a broken link, TorchAdapterFile. It fails as
// OpenModel does.
func OpenAdapter(dir string) (*Set, error) { return openNamed(dir, AdapterFile, TorchAdapterFile) }

// openNamed opens the first of the names that exists in the folder. A corrupt or
// unreadable file or a dangling link is an error; later names are not tried.
func openNamed(dir string, names ...string) (*Set, error) {
	for _, name := range names {
		path := filepath.Join(dir, name)
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("weights: %w", err)
		}
		s, err := openPath(path)
		if err != nil {
			return nil, err
		}
		s.Folder = dir
		if !strings.Contains(name, safetensorsEnding) {
			s.instead(names[0])
		}
		return s, nil
	}
	last := len(names) - 1
	return nil, fmt.Errorf("weights: %s: %w: found none of %s and %s (%w)", dir, ErrNoWeights, strings.Join(names[:last], ", "), names[last], fs.ErrNotExist)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openPath opens a file, or the files of an index.
func openPath(path string) (*Set, error) {
	if indexed(path) != "" {
		return openIndex(path)
	}
	return openFile(path)
}

// instead records that the files were opened because another file is missing.
func (s *Set) instead(missed string) {
	for i := range s.sources {
		if source := &s.sources[i]; !source.Fallback {
			source.Fallback, source.Why = true, strings.TrimSuffix("the folder has no "+missed+"; "+source.Why, "; ")
		}
	}
}

// Origin summarizes the opened files: the file, or the index with the format of
// its files, and the reason for the choice.
func (s *Set) Origin() Source {
	o := Source{Path: s.Path(), Format: strings.Join(s.Formats(), ", "), Why: s.Why()}
	for _, source := range s.sources {
		o.Fallback = o.Fallback || source.Fallback
	}
	return o
}
