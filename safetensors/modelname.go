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

// What the Hugging Face libraries call the files of a model, before variant,
// shard number and extension.
const (
	TransformersStem = "model"                   // transformers; the default
	DiffusersStem    = "diffusion_pytorch_model" // the models of a diffusers pipeline
	AdapterStem      = "adapter_model"           // PEFT
)

// The names of a model's files in its folder, where no NameOption says
// otherwise.
const (
	ModelFile  = TransformersStem + shardExtension
	ModelIndex = TransformersStem + shardExtension + ".index.json"
)

// NameOption says what the files of a model are called in their folder. It is an
// option of OpenModel and of WriteSharded; WriteFile has a path and ignores it.
type NameOption func(*modelName)

func (o NameOption) apply(w *options) { o(&w.name) }

// Stem sets what the names begin with: DiffusersStem for
// diffusion_pytorch_model.safetensors, and so on.
func Stem(stem string) NameOption { return func(n *modelName) { n.stem = stem } }

// Variant chooses among models that share a folder, as transformers and
// diffusers do: the variant "fp16" of the stem "model" is model.fp16.safetensors,
// or model.fp16-00001-of-00002.safetensors and so on with the index
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

// check refuses names that lead out of the folder, or that a reader of the index
// would refuse.
func (n modelName) check() error {
	name := n.file()
	if n.stem == "" || !isShardPath(name, shardExtension) || strings.ContainsAny(name, `/\`) {
		return fmt.Errorf("safetensors: %s: %w", quote(name), ErrShardPath)
	}
	return nil
}

// base is the stem with the variant.
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

// indexes returns the names that the index may have. The first is the one that
// transformers and diffusers write; the others stand for a variant in what
// huggingface_hub and in what diffusers before 0.32 have written.
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

// index is the name of the index that is written.
func (n modelName) index() string { return n.indexes()[0] }

// indexFirst tells what is read where there are both an index and a file: the
// index as diffusers and huggingface_hub do, or the file as transformers does.
func (n modelName) indexFirst() bool { return n.stem != TransformersStem }

// shards matches the names of shards of the model, of any number of them, and
// those that they have while they are exchanged.
func (n modelName) shards() *regexp.Regexp {
	const numbers = `-\d{5,}-of-\d{5,}`
	names := regexp.QuoteMeta(n.base()) + numbers + `(\.[0-9a-f]{16})?`
	if n.variant != "" { // as old versions of diffusers have it
		names += "|" + regexp.QuoteMeta(n.stem) + numbers + regexp.QuoteMeta("."+n.variant)
	}
	return regexp.MustCompile("^(" + names + ")" + regexp.QuoteMeta(shardExtension) + "$")
}

// find returns what to open of a model: a file or an index. Where there is
// neither, the error says so and what is there instead.
func (n modelName) find(dir string) (path string, isIndex bool, err error) {
	candidates := append(n.indexes(), n.file())
	if !n.indexFirst() {
		candidates = append([]string{n.file()}, n.indexes()...)
	}
	for _, name := range candidates {
		path := filepath.Join(dir, name)
		_, err := os.Lstat(path) // a link that leads nowhere is an error of its own, and no reason to look on
		if err == nil {
			return path, name != n.file(), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", false, fmt.Errorf("safetensors: %w", err)
		}
	}
	return "", false, fmt.Errorf("safetensors: %s holds neither %s nor %s%s: %w", dir, n.file(), n.index(), others(dir), fs.ErrNotExist)
}

// others lists some files of a folder that could have been meant.
func others(dir string) string {
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
