package diffusion

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/model"
)

// defaultSide is the default image side of all models.
const defaultSide = 1024

// CacheOptions returns the options for opening the cache of a pipeline with package cache.
// The recipes identify the encoders by the content of their files and include the entry
// settings of o. Parts that TextOnly or PicturesOnly makes unnecessary may be missing.
// Errors: ErrPart, ErrPipeline, picture.ErrSize and I/O errors.
func (p *Pipeline) CacheOptions(o CacheOptions) (cache.Options, error) {
	var made cache.Options
	if !o.TextOnly && !o.PicturesOnly { // before text encoders are downloaded
		if err := p.CheckText(); err != nil {
			return made, err
		}
		if _, _, err := p.sizes(o); err != nil {
			return made, err
		}
	}
	if !o.PicturesOnly {
		r, err := p.textRecipe()
		if err != nil {
			return made, err
		}
		made.Text = r
	}
	if !o.TextOnly {
		r, _, err := p.pictureRecipe(o)
		if err != nil {
			return made, err
		}
		made.Image = r
	}
	return made, nil
}

// textRecipe returns the recipe of text embeddings.
func (p *Pipeline) textRecipe() (cache.Recipe, error) {
	c, err := p.captions()
	if err == nil {
		err = p.checkText(c)
	}
	if err != nil {
		return cache.Recipe{}, err
	}
	names := c.parts()
	if c.shows != nil && p.Has(Processor) {
		names = append(names, Processor)
	}
	id, err := p.fingerprint(names...)
	if err != nil {
		return cache.Recipe{}, err
	}
	return cache.Recipe{Model: id, Settings: map[string]string{
		"prompts": c.name, "max_sequence_length": strconv.Itoa(c.length()),
	}}, nil
}

// length returns the maximum number of tokens of a caption, without the tokens of the
// template and of images.
func (c captions) length() int {
	if c.shows != nil {
		return c.main.longest - c.drop - c.shows.most
	}
	return c.main.longest - c.drop
}

// pictureRecipe returns the recipe of latents and the resizing of images.
func (p *Pipeline) pictureRecipe(o CacheOptions) (cache.Recipe, sizing, error) {
	side, multiple, err := p.sizes(o)
	if err != nil {
		return cache.Recipe{}, sizing{}, err
	}
	sizes, err := p.sizing(side, multiple)
	if err != nil {
		return cache.Recipe{}, sizing{}, err
	}
	id := "pixels"
	if !p.pixels() {
		if id, err = p.fingerprint(VAE); err != nil {
			return cache.Recipe{}, sizing{}, err
		}
		if err := p.checkTiles(o.Tile); err != nil {
			return cache.Recipe{}, sizing{}, err
		}
	}
	settings := map[string]string{
		"side": strconv.Itoa(side), "multiple": strconv.Itoa(multiple), "resize": sizes.name, "latents": "mean",
	}
	if o.Sample {
		settings["latents"] = fmt.Sprintf("sample of seed %d", o.Seed)
	}
	if o.Tile > 0 {
		settings["tile"] = strconv.Itoa(o.Tile)
	}
	return cache.Recipe{Model: id, Settings: settings}, sizes, nil
}

// editMultiple is the divisor of image sides in edit pipelines, as in the reference
// implementation.
const editMultiple = 32

// sizes returns the target side of images and the divisor of their sides. Errors:
// picture.ErrSize, ErrPart, ErrPipeline.
func (p *Pipeline) sizes(o CacheOptions) (side, multiple int, err error) {
	least, err := p.leastMultiple()
	if err != nil {
		return 0, 0, err
	}
	multiple = o.Multiple
	if multiple == 0 {
		if multiple = least; p.Edits() {
			multiple = max(editMultiple, least)
		}
	}
	if multiple < 0 || multiple%least != 0 {
		return 0, 0, fmt.Errorf("diffusion: %w: sides that are multiples of %d, expected multiples of %d, which the pipeline takes", picture.ErrSize, multiple, least)
	}
	return cmp.Or(o.Side, defaultSide), multiple, nil
}

// leastMultiple returns the minimum divisor of image sides.
func (p *Pipeline) leastMultiple() (int, error) {
	if t, _ := p.transformer(); t != nil {
		c, err := p.Canvas(t.Space())
		if err != nil {
			return 0, err
		}
		return c.Multiple, nil
	}
	_, s, err := p.autoencoder()
	return 2 * s.Pixels, err // patch size 2, as in most transformers
}

// checkTiles returns an error if the autoencoder does not support the tile size.
func (p *Pipeline) checkTiles(side int) error {
	_, s, err := p.autoencoder()
	if err != nil {
		return err
	}
	if err := (vae.Options{Tile: side}).Check(s.Pixels); err != nil {
		return fmt.Errorf("diffusion: %w", err)
	}
	return nil
}

// pixels reports whether the transformer works on pixels, or on squares of them, without an
// autoencoder.
func (p *Pipeline) pixels() bool {
	_, listed := p.Parts[VAE]
	t, _ := p.transformer()
	return !listed && t != nil && folds(t.Space().Channels, colours) > 0
}

// transformer returns the interface to the pipeline's transformer, and its class. It returns
// nil if the architecture is unknown.
func (p *Pipeline) transformer() (dit.Transformer, string) {
	raw, err := p.transformerConfig()
	if err != nil {
		return nil, ""
	}
	c, err := model.ParseConfig(raw)
	if err != nil {
		return nil, ""
	}
	t, _ := c.Family.(dit.Transformer)
	return t, c.Architecture
}
