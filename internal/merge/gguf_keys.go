package merge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// keys returns the metadata of the file.
func (g *ggufWriter) keys() ([]gguf.KeyValue, error) {
	name := g.options.Name
	if name == "" {
		name = filepath.Base(filepath.Clean(g.model.Dir))
	}
	keys := []gguf.KeyValue{
		{Key: "general.architecture", Value: g.description.Architecture},
		{Key: "general.type", Value: "model"},
		{Key: "general.name", Value: name},
		{Key: "general.file_type", Value: g.fileType()},
		{Key: "general.quantization_version", Value: uint32(2)},
	}
	keys = append(keys, g.description.Keys...)
	texts, err := g.texts()
	return append(keys, texts...), err
}

// fileTypes are the values of general.file_type (enum llama_ftype).
var fileTypes = map[gguf.Type]uint32{
	gguf.F32: 0, gguf.F16: 1, gguf.Q4_0: 2, gguf.Q8_0: 7, gguf.Q4_K: 14, gguf.Q6_K: 18, gguf.BF16: 32,
}

// fileType returns the type of most matrices.
func (g *ggufWriter) fileType() uint32 {
	count := map[gguf.Type]int{}
	most := gguf.F32
	for _, p := range g.parts {
		if p.Plain {
			continue
		}
		if count[p.kind]++; count[p.kind] > count[most] {
			most = p.kind
		}
	}
	return fileTypes[most]
}

// texts returns the metadata of the tokenizer and the chat template: of the adapter, if
// it has them, or else of the model.
func (g *ggufWriter) texts() ([]gguf.KeyValue, error) {
	dir, err := os.MkdirTemp("", "lorafuse-gguf-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := weights.CopyBeside(g.model.Dir, dir, nil); err != nil {
		return nil, err
	}
	if err := g.copyTexts(dir); err != nil {
		return nil, err
	}
	c := g.model.Config
	keys, err := llamacpp.Tokenizer(dir, c.VocabSize, c.EOS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.model.Dir, err)
	}
	return keys, nil
}

// Modelfile is the name of the file that `ollama create -f` reads.
const Modelfile = "Modelfile"

// WriteModelfile writes a Modelfile of Ollama to the folder of a GGUF file. base, if not
// empty, is the model that the file adapts. Ollama takes the template from the file.
func WriteModelfile(path, base string) error {
	var b strings.Builder
	if base == "" {
		fmt.Fprintf(&b, "FROM ./%s\n", filepath.Base(path))
	} else {
		fmt.Fprintf(&b, "FROM %s\nADAPTER ./%s\n", base, filepath.Base(path))
	}
	return os.WriteFile(filepath.Join(filepath.Dir(path), Modelfile), []byte(b.String()), 0o666)
}
