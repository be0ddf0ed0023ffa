package hub

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a pipeline of diffusers and of its parts that are not those of a model.
const (
	pipelineFile  = "model_index.json"
	schedulerFile = "scheduler_config.json"
	processorFile = "preprocessor_config.json"
)

// stems are what the weights of a part are called: by diffusers, and by transformers. A
// variant, such as diffusion_pytorch_model.fp16.safetensors, is not read.
var stems = []string{"diffusion_pytorch_model", "model"}

const weightsEnding, indexEnding = ".safetensors", ".safetensors.index.json"

// lastFiles are downloaded when all else of a folder is there, weights aside, in this
// order: they say that it is.
var lastFiles = []string{"tokenizer_config.json", "tokenizer.json", processorFile, schedulerFile, pipelineFile, adapterConfigFile, configFile}

func isPipeline(repo repository) error {
	return fmt.Errorf("%w: %s; lorafuse draw, data cache and train with task: diffusion take it", ErrPipeline, repo)
}

// Needed picks of the names of the files in a folder of a pipeline those that are read:
// configurations, tokenizer, and with weights the file that these lie in, or the index that
// names their files. Errors: ErrNoWeights.
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

// otherWeights are files of weights that are not read, or all files where there are none.
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
	const most = 3
	if len(found) > most {
		found = append(slices.Clone(found[:most]), "…")
	}
	return strings.Join(found, ", ")
}

// NeededOf is Needed for a folder on the disk, with the files that an index names.
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

// shards are the files that an index in a folder on the disk names, none if the file is no
// index.
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

// wholePart reports what a folder of a snapshot lacks, as far as that can be known without
// the Hub.
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
