// Package cache stores the encoded captions and images of a diffusion training set, so that the encoders run only once.
// It writes a safetensors file for each caption, image and control image, in the layout of the Python trainers; the
// files are interchangeable.
//
//	text_embs/<caption>.txt.safetensors           prompt_embeds [L, D], prompt_embeds_mask [L] int64,
//	                                              and for some models pooled_prompt_embeds [P]
//	text_embs/empty_embedding.safetensors         the same, of the prompt " "
//	img_embs/<image>.<ext>.safetensors            latent [C, …, H, W]
//	img_embs_control/<image>.<ext>.safetensors    latent
//
// If there is no .safetensors file, a .pt file of the same name, as older versions of the trainers write it, is read.
//
// # Keys
//
// Each entry has a key: a digest of the model, its settings and the contents of the source. It is stored in the
// metadata of the file, which Python ignores. An entry with another key is stale and rebuilt: one entry after a change
// of its caption, all entries after a change of the model. A damaged entry is an error or is rebuilt, depending on
// Options.Corrupt. It is never replaced by anything else.
//
// # Samples
//
// [Cache.Sample] reads the entries of a sample. [DropCaption] reports which captions of a step are replaced by the
// empty prompt.
package cache

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/tensor"
)

// Folders of a cache.
const (
	textDir    = "text_embs"
	imageDir   = "img_embs"
	controlDir = "img_embs_control"
	emptyName  = "empty_embedding"
)

// Sample holds the paths of an image and of the files that belong to it. Absent files have an empty path.
type Sample struct {
	Image   string `json:"image"`
	Caption string `json:"caption"`
	Control string `json:"control,omitempty"` // input image of an editing model
}

// shown returns the image that a text encoder sees together with the caption.
func (s Sample) shown() string {
	if s.Control != "" {
		return s.Control
	}
	return s.Image
}

// Policy selects how an unusable entry is handled.
type Policy uint8

// Policies.
const (
	Refuse  Policy = iota // report an error
	Rebuild               // rebuild the entry
	Accept                // use the entry; only for entries without a key
)

// Options configures how entries are built and how unusable ones are handled.
type Options struct {
	// Text, Image and Control are the recipes of the entries. A zero Control means Image. With a zero Recipe nothing is
	// built, and entries of any recipe are accepted.
	Text, Image, Control Recipe
	// Corrupt is the policy for damaged entries: Refuse or Rebuild.
	Corrupt Policy
	// Unkeyed is the policy for entries written by other programs. It is unknown whether they match the current
	// caption.
	Unkeyed Policy
	// WithoutSources accepts entries of the right recipe without reading their sources, which may be on another
	// machine.
	WithoutSources bool
}

// Cache is an open cache. It is safe for concurrent use, also by several processes on one folder: entries are replaced
// atomically. Within a process every entry is built once.
type Cache struct {
	dir     string
	options Options
	sources *sources

	mu     sync.Mutex
	busy   map[string]chan struct{} // holds a token while a goroutine uses the entry
	owners map[string]string        // source of each entry
	fresh  map[string]string        // keys of the entries found fresh
}

// Open opens the cache in the folder dir, which is created when the first entry is built. It fails with ErrOption.
func Open(dir string, o Options) (*Cache, error) {
	if o.Control.Model == "" && len(o.Control.Settings) == 0 {
		o.Control = o.Image
	}
	if err := cmp.Or(o.Text.check("text"), o.Image.check("images"), o.Control.check("control images")); err != nil {
		return nil, err
	}
	if o.Corrupt > Rebuild {
		return nil, fmt.Errorf("cache: found %d for corrupt entries, expected Refuse or Rebuild: %w", o.Corrupt, ErrOption)
	}
	if o.Unkeyed > Accept {
		return nil, fmt.Errorf("cache: found %d for entries without a key, expected Refuse, Rebuild or Accept: %w", o.Unkeyed, ErrOption)
	}
	return &Cache{
		dir: dir, options: o, sources: newSources(dir),
		busy: map[string]chan struct{}{}, owners: map[string]string{}, fresh: map[string]string{},
	}, nil
}

// Close saves which sources need not be read again after the next Open. A cache that is not closed is complete too.
func (c *Cache) Close() error { return c.sources.save() }

// Text returns the embedding of a caption. If the entry is missing or stale, Text calls build with the text, as
// ReadCaption returns it, and writes the result. If build is nil, Text fails with ErrMissing or ErrStale instead.
//
// It fails with ErrCorrupt and ErrUnkeyed depending on the options, with ErrUTF8, with ErrTensor if build returns an
// invalid embedding, and with errors of build.
func (c *Cache) Text(ctx context.Context, caption string, build func(text string) (Embedding, error)) (Embedding, error) {
	return c.text(ctx, c.textSlot(caption), discardImage(build))
}

// TextWith returns the embedding of a caption that is encoded together with an image, as editing models do. The entry
// depends on both. See Text.
func (c *Cache) TextWith(ctx context.Context, caption, image string, build func(text string, image []byte) (Embedding, error)) (Embedding, error) {
	return c.text(ctx, c.textWithSlot(caption, image), build)
}

// Empty returns the embedding of EmptyPrompt, which replaces dropped captions. build is called with that prompt. See
// Text.
func (c *Cache) Empty(ctx context.Context, build func(text string) (Embedding, error)) (Embedding, error) {
	return c.text(ctx, c.emptySlot(), discardImage(build))
}

// EmptyWith returns the embedding of EmptyPrompt encoded together with an image. There is one entry per caption,
// text_embs/<caption>.txt.empty_embedding.safetensors. (The Python trainers keep these in memory only.)
func (c *Cache) EmptyWith(ctx context.Context, caption, image string, build func(text string, image []byte) (Embedding, error)) (Embedding, error) {
	return c.text(ctx, c.emptyWithSlot(caption, image), build)
}

// Image returns the latent of an image. build is called with the contents of the file. See Text.
func (c *Cache) Image(ctx context.Context, path string, build func(image []byte) (tensor.Tensor, error)) (tensor.Tensor, error) {
	return c.image(ctx, c.imageSlot(path), build)
}

// Control returns the latent of a control image. See Image.
func (c *Cache) Control(ctx context.Context, path string, build func(image []byte) (tensor.Tensor, error)) (tensor.Tensor, error) {
	return c.image(ctx, c.controlSlot(path), build)
}

func discardImage(build func(text string) (Embedding, error)) func(string, []byte) (Embedding, error) {
	if build == nil {
		return nil
	}
	return func(text string, _ []byte) (Embedding, error) { return build(text) }
}

func (c *Cache) text(ctx context.Context, s slot, build func(text string, image []byte) (Embedding, error)) (Embedding, error) {
	t, err := c.get(ctx, s, s.buildText(build), false)
	if err != nil {
		return Embedding{}, err
	}
	return t.embedding()
}

func (c *Cache) image(ctx context.Context, s slot, build func(image []byte) (tensor.Tensor, error)) (tensor.Tensor, error) {
	t, err := c.get(ctx, s, s.buildImage(build), false)
	if err != nil {
		return tensor.Tensor{}, err
	}
	return t.latent()
}
