package hub

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	configFile        = "config.json"
	adapterConfigFile = "adapter_config.json"
	weightsFile       = "model.safetensors"
	indexFile         = "model.safetensors.index.json"
	adapterWeights    = "adapter_model.safetensors"
	templatesFolder   = "additional_chat_templates"
)

var tokenizerFiles = []string{"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spm.model", "vocab.json", "vocab.txt"}

// smallFiles are the files that lorafuse reads in addition to the weights.
var smallFiles = append([]string{
	configFile, adapterConfigFile, "generation_config.json",
	"special_tokens_map.json", "added_tokens.json", "merges.txt",
	"chat_template.jinja", "chat_template.json",
}, tokenizerFiles...)

// sentenceFile matches the files of sentence-transformers: the pooling configuration, and the folders of the layers
// after the model.
var sentenceFile = regexp.MustCompile(`^(modules\.json|config_sentence_transformers\.json|sentence_[a-z-]+_config\.json|[0-9]+_[A-Za-z]+/(config\.json|model\.safetensors))$`)

// chooseSmall returns the files other than weights, sorted by name.
func chooseSmall(files []string) []string {
	var chosen []string
	for _, f := range files {
		if slices.Contains(smallFiles, f) || path.Dir(f) == templatesFolder && path.Ext(f) == ".jinja" || sentenceFile.MatchString(f) {
			chosen = append(chosen, f)
		}
	}
	slices.Sort(chosen)
	return chosen
}

// chooseWeights returns the weight files; with an index, the files that it names.
func chooseWeights(repo repository, files []string, index []byte) ([]string, error) {
	if index != nil {
		shards, err := parseIndex(index)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", repo, indexFile, err)
		}
		for _, s := range shards {
			if !slices.Contains(files, s) {
				return nil, fmt.Errorf("%w: %s: %s names %s, which is not in the repository", ErrNoWeights, repo, indexFile, s)
			}
		}
		return shards, nil
	}
	for _, f := range []string{weightsFile, adapterWeights} {
		if slices.Contains(files, f) {
			return []string{f}, nil
		}
	}
	// Names of their own; "consolidated" is another format's copy.
	var others []string
	pickles := ""
	for _, f := range files {
		switch {
		case strings.Contains(f, "/"):
		case strings.HasSuffix(f, ".safetensors") && !strings.HasPrefix(f, "consolidated"):
			others = append(others, f)
		case strings.HasSuffix(f, ".bin") || strings.HasSuffix(f, ".pt") || strings.HasSuffix(f, ".pth"):
			pickles = f
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		return others, nil
	}
	if pickles != "" {
		return nil, fmt.Errorf("%w: %s has them only as %s; convert them to safetensors first", ErrNoWeights, repo, pickles)
	}
	return nil, fmt.Errorf("%w: %s has no %s", ErrNoWeights, repo, weightsFile)
}

// largestIndex is the same limit as in huggingface_hub.
const largestIndex = 10 << 20

// parseIndex returns the shards of an index file, by name.
func parseIndex(text []byte) ([]string, error) {
	if len(text) > largestIndex {
		return nil, fmt.Errorf("%d bytes, more than an index has", len(text))
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, err
	}
	shards := make(map[string]bool)
	for tensor, shard := range index.WeightMap {
		if !safePath(shard) || path.Ext(shard) != ".safetensors" {
			return nil, fmt.Errorf("tensor %q lies in %q, expected the name of a .safetensors file", tensor, shard)
		}
		shards[shard] = true
	}
	if len(shards) == 0 {
		return nil, fmt.Errorf("no weight_map")
	}
	return slices.Sorted(maps.Keys(shards)), nil
}

// safePath reports whether a path in a repository stays within the snapshot
// that it is put into, on every system.
func safePath(p string) bool {
	if p == "" || p != path.Clean(p) || path.IsAbs(p) || strings.ContainsAny(p, "\\:\x00") {
		return false
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." || part == "." {
			return false
		}
	}
	return true
}
