package weights

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stems lists the names of weight files in the folders of PEFT, transformers
// and diffusers. The adapter comes first, because its folder may contain a copy
// of the model.
var stems = []struct{ safetensors, torch string }{
	{"adapter_model", "adapter_model"},
	{"model", "pytorch_model"},
	{"diffusion_pytorch_model", "diffusion_pytorch_model"},
}

// torchEndings lists the extensions of files written by torch.save.
var torchEndings = []string{".bin", ".pt", ".pth", ".ckpt"}

const (
	safetensorsEnding = ".safetensors"
	indexEnding       = ".index.json"
)

// openFolder opens the weights in a folder.
func openFolder(dir string) (*Set, error) {
	names, err := list(dir)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	name, missed, err := choose(names)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", dir, err)
	}
	s, err := openPath(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	s.Folder = dir
	if missed != "" {
		s.instead(missed)
	}
	return s, nil
}

// list returns the names of the files in a folder. It includes dangling links,
// so that they are reported as errors rather than skipped.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// choose returns the file or the index to open. missed is set if the file has a
// usual name but not the preferred format.
func choose(names []string) (name, missed string, err error) {
	for _, stem := range stems {
		for _, ending := range []string{safetensorsEnding, safetensorsEnding + indexEnding} {
			if name := stem.safetensors + ending; slices.Contains(names, name) {
				return name, "", nil
			}
		}
	}
	for _, stem := range stems {
		for _, ending := range []string{".bin", ".bin" + indexEnding} {
			if name := stem.torch + ending; slices.Contains(names, name) {
				return name, stem.safetensors + safetensorsEnding, nil
			}
		}
	}
	return chooseOther(names)
}

// chooseOther returns the only file with another name, or the index of several
// shards.
func chooseOther(names []string) (name, missed string, err error) {
	endings := [][]string{{safetensorsEnding + indexEnding}, {safetensorsEnding}, {".bin" + indexEnding}, torchEndings}
	for _, wanted := range endings {
		var found []string
		for _, n := range names {
			has := func(ending string) bool { return strings.HasSuffix(n, ending) }
			if slices.ContainsFunc(wanted, has) && !strings.HasPrefix(n, ".") && !isTrainingState(n) {
				found = append(found, n)
			}
		}
		switch {
		case len(found) == 1:
			return found[0], "", nil
		case len(found) > 1:
			const most = 4
			text := strings.Join(found[:min(most, len(found))], ", ")
			if len(found) > most {
				text += ", …"
			}
			return "", "", fmt.Errorf("%w: %s; name one of them", ErrAmbiguous, text)
		}
	}
	return "", "", fmt.Errorf("%w: found no model.safetensors, adapter_model.safetensors or other file of tensors (%w)", ErrNoWeights, fs.ErrNotExist)
}

// isTrainingState reports whether a file is one that trainers write next to the
// weights.
func isTrainingState(name string) bool {
	for _, known := range []string{"training_args.", "optimizer.", "scheduler.", "scaler.", "rng_state"} {
		if strings.HasPrefix(name, known) {
			return true
		}
	}
	return false
}
