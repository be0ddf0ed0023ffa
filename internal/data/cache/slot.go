package cache

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/safetensors/torchfile"
	"github.com/lorafuse/lorafuse/tensor"
)

// slot describes an entry: its kind, file and sources.
type slot struct {
	kind    kind
	path    string // path of the .safetensors file
	recipe  Recipe
	owner   string // source file that the entry is named after, empty for none
	caption string // source of the text, empty for EmptyPrompt
	image   string // source of the image, empty for none
}

func (c *Cache) place(folder, name string) string {
	return filepath.Join(c.dir, folder, name+".safetensors")
}

func (c *Cache) textSlot(caption string) slot {
	return slot{kind: textKind, path: c.place(textDir, filepath.Base(caption)), recipe: c.options.Text, owner: caption, caption: caption}
}

func (c *Cache) textWithSlot(caption, image string) slot {
	s := c.textSlot(caption)
	s.kind, s.image = textImageKind, image
	return s
}

func (c *Cache) emptySlot() slot {
	return slot{kind: textKind, path: c.place(textDir, emptyName), recipe: c.options.Text}
}

func (c *Cache) emptyWithSlot(caption, image string) slot {
	return slot{
		kind: textImageKind, path: c.place(textDir, filepath.Base(caption)+"."+emptyName),
		recipe: c.options.Text, owner: caption, image: image,
	}
}

func (c *Cache) imageSlot(image string) slot {
	return slot{kind: imageKind, path: c.place(imageDir, filepath.Base(image)), recipe: c.options.Image, owner: image, image: image}
}

func (c *Cache) controlSlot(image string) slot {
	return slot{kind: controlKind, path: c.place(controlDir, filepath.Base(image)), recipe: c.options.Control, owner: image, image: image}
}

func (s slot) isText() bool { return s.kind == textKind || s.kind == textImageKind }

// file returns the file of the entry for error messages: the .pt file if only that exists.
func (s slot) file() string {
	old := strings.TrimSuffix(s.path, ".safetensors") + ".pt"
	if !present(s.path) && present(old) {
		return old
	}
	return s.path
}

// check checks the shapes in the header of an entry.
func (s slot) check(found shapes) error {
	if s.isText() {
		return checkText(found)
	}
	return checkLatent(found)
}

// checkValues checks all tensors of an entry.
func (s slot) checkValues(t tensors) error {
	var err error
	if s.isText() {
		_, err = t.embedding()
	} else {
		_, err = t.latent()
	}
	return err
}

// within maps the tensors of an entry to names in a file. A latent written by torch.save has no name.
func (s slot) within(f *safetensors.File, from torchfile.Source) named {
	if s.isText() {
		in := named{f, map[string]string{embedsName: embedsName}}
		for _, name := range []string{maskName, pooledName} {
			if f.Has(name) {
				in.names[name] = name
			}
		}
		return in
	}
	if from.Format != "safetensors" && f.Has(torchfile.BareName) {
		return named{f, map[string]string{latentName: torchfile.BareName}}
	}
	return named{f, map[string]string{latentName: latentName}}
}

// digests returns the digests of the sources.
func (s slot) digests(ctx context.Context, from *sources) ([]digest, error) {
	var all []digest
	if s.isText() && s.caption == "" {
		all = append(all, digestOf([]byte(EmptyPrompt)))
	}
	for _, path := range []string{s.caption, s.image} {
		if path == "" {
			continue
		}
		d, err := from.digest(ctx, path)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// contents returns the contents of the sources, and the digests of exactly these contents.
func (s slot) contents(ctx context.Context, from *sources) (caption, image []byte, all []digest, err error) {
	if s.isText() && s.caption == "" {
		caption = []byte(EmptyPrompt)
		all = append(all, digestOf(caption))
	}
	var d digest
	if s.caption != "" {
		if caption, d, err = from.content(ctx, s.caption); err != nil {
			return nil, nil, nil, err
		}
		all = append(all, d)
	}
	if s.image != "" {
		if image, d, err = from.content(ctx, s.image); err != nil {
			return nil, nil, nil, err
		}
		all = append(all, d)
	}
	return caption, image, all, nil
}

// builder builds the tensors of an entry from the contents of its sources.
type builder func(caption, image []byte) (tensors, error)

func (s slot) buildText(build func(text string, image []byte) (Embedding, error)) builder {
	if build == nil {
		return nil
	}
	return func(caption, image []byte) (tensors, error) {
		text, err := captionText(s.caption, caption)
		if err != nil {
			return nil, err
		}
		e, err := build(text, image)
		if err != nil {
			return nil, s.notBuilt(err)
		}
		t, err := e.tensors()
		if err != nil {
			return nil, s.notBuilt(err)
		}
		return t, nil
	}
}

func (s slot) buildImage(build func(image []byte) (tensor.Tensor, error)) builder {
	if build == nil {
		return nil
	}
	return func(_, image []byte) (tensors, error) {
		latent, err := build(image)
		if err != nil {
			return nil, s.notBuilt(err)
		}
		t, err := latentTensors(latent)
		if err != nil {
			return nil, s.notBuilt(err)
		}
		return t, nil
	}
}

// notBuilt returns an error that names the entry and its source.
func (s slot) notBuilt(err error) error {
	of := "the empty prompt"
	switch {
	case s.caption != "":
		of = s.caption
	case s.image != "":
		of = s.image
	}
	return fmt.Errorf("cache: build %s of %s: %w", s.path, of, err)
}
