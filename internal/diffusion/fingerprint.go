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

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
)

// Sampling of large files: the number of ranges, including the first and the last bytes of
// the file, and the bytes per range.
const (
	sampledStretches = 256
	sampledBytes     = 4 << 10
)

// fingerprint identifies parts of the pipeline by the content of their files: it returns the
// class of the first part and a digest. It samples a megabyte of each weight file, which
// suffices to distinguish trained models, whatever the names of their folders.
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

// className returns the class of a part, from model_index.json or its config.json.
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

// weightless lists the parts that have no weights.
var weightless = []string{Scheduler, Tokenizer, Tokenizer2, Processor}

// digestFolder adds the files that loading a model or tokenizer reads. Other files in the
// folder, such as variants, do not change the digest.
func digestFolder(sum hash.Hash, dir string, weights bool) error {
	names, err := hub.NeededOf(dir, weights)
	if errors.Is(err, hub.ErrNoWeights) { // weights in a torch.save file, or with another name
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
	for _, e := range entries { // in name order
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
