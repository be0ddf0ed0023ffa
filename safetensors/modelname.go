package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Stems of the file names of a model in the Hugging Face libraries. Variant,
// shard number and extension follow the stem.
const (
	TransformersStem = "model"                   // transformers; the default
	DiffusersStem    = "diffusion_pytorch_model" // models of a diffusers pipeline
	AdapterStem      = "adapter_model"           // PEFT
)

// The default file names of a model in its folder.
const (
	ModelFile  = TransformersStem + shardExtension
	ModelIndex = TransformersStem + shardExtension + ".index.json"
)

// NameOption changes the file names of a model in its folder. It is an option of
// OpenModel and WriteSharded. WriteFile takes a path and ignores it.
type NameOption func(*modelName)

func (o NameOption) apply(w *options) { o(&w.name) }

// Stem sets the prefix of the file names: DiffusersStem for
// diffusion_pytorch_model.safetensors, and so on.
func Stem(stem string) NameOption { return func(n *modelName) { n.stem = stem } }

// Variant selects one of several models in a folder, as in transformers and
// diffusers. The variant "fp16" of the stem "model" is model.fp16.safetensors, or
// shards such as model.fp16-00001-of-00002.safetensors with the index
// model.safetensors.index.fp16.json.
func Variant(variant string) NameOption { return func(n *modelName) { n.variant = variant } }

type modelName struct{ stem, variant string }

var defaultName = modelName{stem: TransformersStem}

func newModelName(opts []NameOption) (modelName, error) {
	n := defaultName
	for _, opt := range opts {
		opt(&n)
	}
	return n, n.check()
}

// check rejects names that lead out of the folder or that a reader of the index
// would reject.
func (n modelName) check() error {
	name := n.file()
	if n.stem == "" || !isShardPath(name, shardExtension) || strings.ContainsAny(name, `/\`) {
		return fmt.Errorf("safetensors: %s: %w", quote(name), ErrShardPath)
	}
	return nil
}

// base returns the stem with the variant.
func (n modelName) base() string {
	if n.variant == "" {
		return n.stem
	}
	return n.stem + "." + n.variant
}

func (n modelName) file() string { return n.base() + shardExtension }

func (n modelName) shard(i, of int) string {
	return fmt.Sprintf("%s-%05d-of-%05d%s", n.base(), i, of, shardExtension)
}

// indexes returns the possible names of the index. The first is the one that
// transformers and diffusers write. The others are written for variants by
// huggingface_hub and by diffusers before 0.32.
func (n modelName) indexes() []string {
	const end = ".json"
	first := n.stem + shardExtension + ".index"
	if n.variant == "" {
		return []string{first + end}
	}
	return []string{
		first + "." + n.variant + end,
		n.base() + shardExtension + ".index" + end,
		n.stem + shardExtension + "." + n.variant + ".index" + end,
	}
}

// index returns the name under which the index is written.
func (n modelName) index() string { return n.indexes()[0] }

// indexFirst reports whether an index takes precedence over a single file, as
// in diffusers and huggingface_hub. In transformers the file takes precedence.
func (n modelName) indexFirst() bool { return n.stem != TransformersStem }

// shards matches the names of the model's shards, for any number of shards,
// including their interim names during a replacement.
func (n modelName) shards() *regexp.Regexp {
	const numbers = `-\d{5,}-of-\d{5,}`
	names := regexp.QuoteMeta(n.base()) + numbers + `(\.[0-9a-f]{16})?`
	if n.variant != "" { // written by old versions of diffusers
		names += "|" + regexp.QuoteMeta(n.stem) + numbers + regexp.QuoteMeta("."+n.variant)
	}
	return regexp.MustCompile("^(" + names + ")" + regexp.QuoteMeta(shardExtension) + "$")
}

// find returns the path of the model's file or index. If neither exists, the
// error lists the files that do.
func (n modelName) find(dir string) (path string, isIndex bool, err error) {
	candidates := append(n.indexes(), n.file())
	if !n.indexFirst() {
		candidates = append([]string{n.file()}, n.indexes()...)
	}
	for _, name := range candidates {
		path := filepath.Join(dir, name)
		_, err := os.Lstat(path) // report a dangling link as an error instead of trying the next name
		if err == nil {
			return path, name != n.file(), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", false, fmt.Errorf("safetensors: %w", err)
		}
	}
	return "", false, fmt.Errorf("safetensors: %s holds neither %s nor %s%s: %w", dir, n.file(), n.index(), similarFiles(dir), fs.ErrNotExist)
}

// similarFiles lists files of a folder that the caller may have meant.
func similarFiles(dir string) string {
	files, _ := os.ReadDir(dir)
	var names []string
	for _, f := range files {
		if name := f.Name(); strings.HasSuffix(name, shardExtension) || strings.Contains(name, shardExtension+".index") {
			names = append(names, name)
		}
	}
	const most = 3
	switch {
	case len(names) == 0:
		return ""
	case len(names) > most:
		names = append(names[:most], "…")
	}
	return ", but " + strings.Join(names, ", ")
}
