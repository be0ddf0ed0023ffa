package diffusion

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/model/hub"
)

// What is read of files that are too large to be read whole: so many stretches of so many
// bytes, the first and the last among them.
const (
	sampledStretches = 256
	sampledBytes     = 4 << 10
)

// fingerprint names parts of the pipeline by what is in their files: the class of the
// first, and a digest. It reads a megabyte of each file of weights: enough to tell models
// apart that were trained, whatever their folders are called.
func (p *Pipeline) fingerprint(names ...string) (string, error) {
	sum := sha256.New()
	for _, name := range names {
		weights := !slices.Contains(weightless, name)
		dir, err := p.fetch(name, weights)
		if err != nil {
			return "", err
		}
		if err := digestFolder(sum, dir, weights); err != nil {
			return "", fmt.Errorf("diffusion: %w", err)
		}
	}
	return p.className(names[0]) + " " + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// className is the class of a part, by model_index.json or by its config.json.
func (p *Pipeline) className(name string) string {
	part := p.Parts[name]
	if part.Class != "" {
		return part.Class
	}
	if c, err := model.ReadConfig(part.Dir); err == nil {
		return c.Architecture
	}
	return name
}

// weightless are parts that have no weights.
var weightless = []string{Scheduler, Tokenizer, Tokenizer2, Processor}

// digestFolder adds the files of a model or of a tokenizer that are read: what else lies
// there, variants and what other programs have left, makes no other model of it.
func digestFolder(sum hash.Hash, dir string, weights bool) error {
	names, err := hub.NeededOf(dir, weights)
	if errors.Is(err, hub.ErrNoWeights) { // they are in a file of torch.save, or of another name
		return digestAll(sum, dir)
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := digestFile(sum, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	return nil
}

func digestAll(sum hash.Hash, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries { // by name
		extension := strings.ToLower(filepath.Ext(e.Name()))
		if !slices.Contains([]string{".json", ".jinja", ".txt", ".model", ".safetensors", ".bin"}, extension) {
			continue
		}
		if err := digestFile(sum, filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func digestFile(sum hash.Hash, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	fmt.Fprintf(sum, "%s %d\n", filepath.Base(path), info.Size())
	const whole = sampledStretches * sampledBytes * 16 // tokenizers are smaller
	if info.Size() <= whole {
		_, err = io.Copy(sum, f)
		return err
	}
	buffer := make([]byte, sampledBytes)
	for i := range int64(sampledStretches) {
		if _, err := f.ReadAt(buffer, (info.Size()-sampledBytes)/(sampledStretches-1)*i); err != nil {
			return err
		}
		sum.Write(buffer)
	}
	return nil
}
