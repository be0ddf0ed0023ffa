package hub

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Files of a diffusers pipeline and its components that models do not have.
const (
	pipelineFile  = "model_index.json"
	schedulerFile = "scheduler_config.json"
	processorFile = "preprocessor_config.json"
)

// stems are the base names of weight files, in diffusers and in transformers. Variants, such as
// diffusion_pytorch_model.fp16.safetensors, are not read.
var stems = []string{"diffusion_pytorch_model", "model"}

const weightsEnding, indexEnding = ".safetensors", ".safetensors.index.json"

// lastFiles are downloaded after all other files of a folder except weights, in this order: their presence marks a
// complete folder.
var lastFiles = []string{"tokenizer_config.json", "tokenizer.json", processorFile, schedulerFile, pipelineFile, adapterConfigFile, configFile}

func isPipeline(repo repository) error {
	return fmt.Errorf("%w: %s; lorafuse draw, data cache and train with task: diffusion take it", ErrPipeline, repo)
}

// Needed returns the names of the files that are read, out of all names in a folder of a pipeline: configurations,
// tokenizer and, with weights, the weight file or its index. Errors: ErrNoWeights.
func Needed(names []string, weights bool) ([]string, error) {
	needed := chooseSmall(names)
	for _, name := range []string{pipelineFile, schedulerFile} {
		if slices.Contains(names, name) {
			needed = append(needed, name)
		}
	}
	if slices.Contains(names, processorFile) {
		if slices.Contains(names, configFile) {
			needed = append(needed, processorFile)
		} else { // a processor, with a copy of the tokenizer
			needed = []string{processorFile}
		}
	}
	if !weights {
		return needed, nil
	}
	for _, stem := range stems {
		for _, ending := range []string{weightsEnding, indexEnding} {
			if slices.Contains(names, stem+ending) {
				return append(needed, stem+ending), nil
			}
		}
	}
	return nil, fmt.Errorf("%w: found %s, expected %s or %s, or the index of one of them", ErrNoWeights, otherWeights(names), stems[0]+weightsEnding, stems[1]+weightsEnding)
}

// otherWeights returns the weight files that are not read, or all files if there are no weight files.
func otherWeights(names []string) string {
	var found []string
	for _, n := range names {
		if slices.Contains([]string{".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".msgpack"}, path.Ext(n)) {
			found = append(found, n)
		}
	}
	if found == nil {
		found = names
	}
	return few(found)
}

// few joins the first names of a list.
func few(names []string) string {
	const most = 3
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "…")
	}
	return strings.Join(names, ", ")
}

// NeededOf is like Needed for a local folder, and includes the files that an index lists.
func NeededOf(dir string, weights bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	needed, err := Needed(names, weights)
	if err != nil || !weights {
		return needed, err
	}
	shards, err := shards(dir, needed[len(needed)-1])
	return append(needed, shards...), err
}

// shards returns the files that an index in a local folder lists, none if the file is not an index.
func shards(dir, file string) ([]string, error) {
	if !strings.HasSuffix(file, indexEnding) {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	names, err := parseIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return names, nil
}

// wholePart returns an error for the files that a snapshot folder lacks, without asking the Hub.
func wholePart(dir string, weights bool) error {
	if !slices.ContainsFunc(lastFiles, func(name string) bool { return exists(filepath.Join(dir, name)) }) {
		return fmt.Errorf("its configuration is missing")
	}
	if !weights {
		return nil
	}
	needed, err := NeededOf(dir, true)
	if err != nil {
		return err
	}
	for _, name := range needed {
		if !exists(filepath.Join(dir, filepath.FromSlash(name))) {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return nil
}
