package torchfile

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/lorafuse/lorafuse/safetensors"
)

// The names of a model's files in its folder where PyTorch has written them.
const (
	ModelFile  = "pytorch_model.bin"
	ModelIndex = "pytorch_model.bin.index.json"
)

// OpenModel opens the model in a folder as safetensors.OpenModel does; only if
// neither of the files that are looked for there exists, ModelFile or, failing
// that, the shards that ModelIndex names, as the transformers library does. The
// Source says so. Where there is none of the four, the error is fs.ErrNotExist.
func OpenModel(dir string) (*safetensors.Set, Source, error) {
	for _, name := range []string{safetensors.ModelFile, safetensors.ModelIndex, ModelFile, ModelIndex} {
		path := filepath.Join(dir, name)
		there, err := exists(path)
		if err != nil {
			return nil, Source{}, err
		}
		if !there {
			continue
		}
		switch name {
		case ModelFile:
			return openModelFile(path)
		case ModelIndex:
			return openModelIndex(path)
		}
		set, err := safetensors.OpenModel(dir)
		if err != nil {
			return nil, Source{}, err
		}
		return set, Source{Path: path, Format: formatSafetensors}, nil
	}
	return nil, Source{}, fmt.Errorf("torchfile: %s holds none of %s, %s, %s and %s: %w",
		dir, safetensors.ModelFile, safetensors.ModelIndex, ModelFile, ModelIndex, fs.ErrNotExist)
}

func openModelFile(path string) (*safetensors.Set, Source, error) {
	f, s, err := openContent(path)
	if err != nil {
		return nil, Source{}, err
	}
	return safetensors.NewSet(f), fallback(s), nil
}

func openModelIndex(path string) (*safetensors.Set, Source, error) {
	s := Source{}
	set, err := safetensors.OpenIndexOf(path, filepath.Ext(ModelFile), func(path string) (*safetensors.File, error) {
		f, of, err := openContent(path)
		s.Format = of.Format // of all shards, as they come from one hand
		return f, err
	})
	if err != nil {
		return nil, Source{}, err
	}
	s.Path = path
	return set, fallback(s), nil
}

func fallback(s Source) Source {
	s.Fallback = true
	s.Why = joinWhy("neither "+safetensors.ModelFile+" nor "+safetensors.ModelIndex+" exists", s.Why)
	return s
}
