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

// AdapterFile is the file of an adapter in its folder.
const AdapterFile = "adapter_model.safetensors"

// The names of the files of a model and of an adapter where torch.save has written
// them, as transformers and PEFT call them.
const (
	TorchModelFile   = "pytorch_model.bin"
	TorchModelIndex  = "pytorch_model.bin.index.json"
	TorchAdapterFile = "adapter_model.bin"
)

// OpenModel opens the model in a folder as transformers does: the safetensors file
// of that name, else the shards of its index; only if neither exists, TorchModelFile
// or the shards of TorchModelIndex, of which Origin says so. Other files are not
// looked at. It fails as Open does, with ErrNoWeights where there is none of them.
func OpenModel(dir string) (*Set, error) {
	return openNamed(dir, safetensors.ModelFile, safetensors.ModelIndex, TorchModelFile, TorchModelIndex)
}

// OpenDiffusion is OpenModel for the models of diffusers, whose files have other names.
func OpenDiffusion(dir string) (*Set, error) {
	const stem = "diffusion_pytorch_model"
	return openNamed(dir, stem+".safetensors", stem+".safetensors.index.json", stem+".bin", stem+".bin.index.json")
}

// OpenAdapter opens the adapter in a folder as PEFT does: AdapterFile, and only if
// there is none, not even a broken one, TorchAdapterFile. It fails as OpenModel does.
func OpenAdapter(dir string) (*Set, error) { return openNamed(dir, AdapterFile, TorchAdapterFile) }

// openNamed opens the first of the names that exists in the folder. One that is
// corrupt, may not be read or is a link that leads nowhere is no reason to look on.
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

// openPath opens a file, or the files of an index.
func openPath(path string) (*Set, error) {
	if indexed(path) != "" {
		return openIndex(path)
	}
	return openFile(path)
}

// instead notes that the files were opened in the place of one that is missing.
func (s *Set) instead(missed string) {
	for i := range s.sources {
		if source := &s.sources[i]; !source.Fallback {
			source.Fallback, source.Why = true, strings.TrimSuffix("the folder has no "+missed+"; "+source.Why, "; ")
		}
	}
}

// Origin sums up what was opened: the file, or the index with the format of its
// files, and why.
func (s *Set) Origin() Source {
	o := Source{Path: s.Path(), Format: strings.Join(s.Formats(), ", "), Why: s.Why()}
	for _, source := range s.sources {
		o.Fallback = o.Fallback || source.Fallback
	}
	return o
}
