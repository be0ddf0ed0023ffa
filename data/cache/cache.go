// Package cache keeps what encoders make of the captions and images that a
// diffusion model is fine-tuned on, so that they run once: a safetensors file
// for each caption, image and control image, in the layout of the Python
// trainers, which read these files as we read theirs.
//
//	text_embs/<caption>.txt.safetensors           prompt_embeds [L, D], prompt_embeds_mask [L] int64,
//	                                              and for some models pooled_prompt_embeds [P]
//	text_embs/empty_embedding.safetensors         the same, of the prompt " "
//	img_embs/<image>.<ext>.safetensors            latent [C, …, H, W]
//	img_embs_control/<image>.<ext>.safetensors    latent
//
// A .pt file of the same name, as older versions of the trainers wrote it, is
// read where there is no .safetensors file.
//
// # Keys
//
// An entry is keyed by a digest of what it was made of: the model, its settings
// and the content of the source. The key stands in the file's metadata, where
// Python does not look. An entry with another key is stale and built again:
// after a change of one caption that one entry, after a change of the model all
// of them. An entry that cannot be read, or whose bytes are not those that were
// written, is an error or built again, as Options.Corrupt says; nothing else
// ever takes its place.
//
// # Samples
//
// [Cache.Sample] reads the entries of one sample. [DropCaption] reports which captions
// of a step are replaced by the empty prompt.
package cache

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/tensor"
)

// The folders of a cache.
const (
	textDir    = "text_embs"
	imageDir   = "img_embs"
	controlDir = "img_embs_control"
	emptyName  = "empty_embedding"
)

// Sample is one image to train on with what belongs to it: paths of files,
// empty for what there is not.
type Sample struct {
	Image   string `json:"image"`
	Caption string `json:"caption"`
	Control string `json:"control,omitempty"` // the image to start from, where a model edits images
}

// shown is the image that an encoder of text sees along with the caption.
func (s Sample) shown() string {
	if s.Control != "" {
		return s.Control
	}
	return s.Image
}

// Policy says what becomes of an entry that should not be used.
type Policy uint8

// The choices of a Policy.
const (
	Refuse  Policy = iota // an error names it
	Rebuild               // it is built again
	Accept                // it is used: for entries without a key
)

// Options say how entries are made and what becomes of odd ones.
type Options struct {
	// Text, Image and Control are what entries are made with; Control is Image
	// where it is zero. A zero Recipe builds nothing, and takes entries of any.
	Text, Image, Control Recipe
	// Corrupt says what becomes of an entry that is damaged: Refuse or Rebuild.
	Corrupt Policy
	// Unkeyed says what becomes of an entry that another program has written.
	// Nobody can know whether it belongs to the caption as it is now.
	Unkeyed Policy
	// WithoutSources takes entries that are made with the recipe without a look
	// at their sources, which may be elsewhere.
	WithoutSources bool
}

// Cache is an open cache. It is safe for concurrent use, and so is its folder:
// several processes may build the same entries, of which each is whole at any
// moment. Within a process every entry is built once.
type Cache struct {
	dir     string
	options Options
	sources *sources

	mu     sync.Mutex
	busy   map[string]chan struct{} // full while somebody is at the entry
	owners map[string]string        // the source of each entry
	fresh  map[string]string        // keys of the entries that have been checked
}

// Open opens the cache in the folder dir, which need not exist before something
// is built. It fails with ErrOption.
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

// Close remembers, for the next Open, which sources need not be read again. A
// cache that is not closed is complete, too.
func (c *Cache) Close() error { return c.sources.save() }

// Text is the embedding of a caption. It is read from the cache; where it is
// missing or stale, it is made by build, which gets the text as ReadCaption
// gives it, and written. A nil build makes nothing: then Text fails with
// ErrMissing and ErrStale.
//
// It fails with ErrCorrupt and ErrUnkeyed as the options say, with ErrUTF8, with
// ErrTensor where build returns something else than an embedding, and with what
// build returns.
func (c *Cache) Text(ctx context.Context, caption string, build func(text string) (Embedding, error)) (Embedding, error) {
	return c.text(ctx, c.textSlot(caption), discardImage(build))
}

// TextWith is Text for encoders that see an image along with the caption, such
// as those of models that edit images. The entry depends on both.
func (c *Cache) TextWith(ctx context.Context, caption, image string, build func(text string, image []byte) (Embedding, error)) (Embedding, error) {
	return c.text(ctx, c.textWithSlot(caption, image), build)
}

// Empty is the embedding of EmptyPrompt, for captions that are dropped. Its
// build is called with that prompt. See Text.
func (c *Cache) Empty(ctx context.Context, build func(text string) (Embedding, error)) (Embedding, error) {
	return c.text(ctx, c.emptySlot(), discardImage(build))
}

// EmptyWith is Empty for encoders that see an image along with the prompt: an
// embedding for each caption, in text_embs/<caption>.txt.empty_embedding.safetensors.
// (The Python trainers keep these in memory only.)
func (c *Cache) EmptyWith(ctx context.Context, caption, image string, build func(text string, image []byte) (Embedding, error)) (Embedding, error) {
	return c.text(ctx, c.emptyWithSlot(caption, image), build)
}

// Image is the latent of an image. build gets the content of the file. See Text.
func (c *Cache) Image(ctx context.Context, path string, build func(image []byte) (tensor.Tensor, error)) (tensor.Tensor, error) {
	return c.image(ctx, c.imageSlot(path), build)
}

// Control is the latent of a control image. See Image.
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
