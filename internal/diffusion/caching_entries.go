package diffusion

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"image"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/tensor"
)

// texts encodes captions one at a time, so that each has the whole device. It is safe for
// concurrent use.
type texts struct {
	pipeline *Pipeline
	ctx      context.Context // of the one BuildCache call that it serves
	dev      backend.Device

	truncated func(caption string, t Truncation) // may be nil

	mu      sync.Mutex
	encoder *Encoder
}

// encode encodes a caption.
func (t *texts) encode(text string) (cache.Embedding, error) { return t.encodeAll(text) }

// encodeWith encodes a caption together with the image that is edited, given as file content.
func (t *texts) encodeWith(text string, content []byte) (cache.Embedding, error) {
	img, err := picture.Decode(content)
	if err != nil {
		return cache.Embedding{}, err
	}
	return t.encodeAll(text, img)
}

func (t *texts) encodeAll(text string, pictures ...image.Image) (cache.Embedding, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.open(); err != nil {
		return cache.Embedding{}, err
	}
	p, err := t.encoder.Encode(t.ctx, text, pictures...)
	if err != nil {
		return cache.Embedding{}, err
	}
	if t.truncated != nil {
		for _, x := range t.encoder.Truncations() {
			t.truncated(text, x)
		}
	}
	return t.encoder.embedding(p)
}

func (t *texts) open() (err error) {
	if t.encoder == nil {
		t.encoder, err = t.pipeline.OpenEncoder(t.ctx, t.dev)
	}
	return err
}

func (t *texts) close() {
	if t.encoder != nil {
		t.encoder.Close()
	}
}

// embedding returns an encoded prompt as the cache stores it: in the dtype of the encoder's
// weights, like the reference implementation.
func (e *Encoder) embedding(p dit.Prompt) (made cache.Embedding, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("what the text encoders give: %w", err)
		}
	}()
	d := storedAs(e.DType())
	tokens := len(p.Values) / p.Features
	if made.Embeds, err = stored(d, p.Values, tokens, p.Features); err != nil {
		return made, err
	}
	made.Mask = make([]int64, tokens)
	for i := range made.Mask {
		if p.Mask == nil || p.Mask[i] {
			made.Mask[i] = 1
		}
	}
	if p.Pooled != nil {
		made.Pooled, err = stored(d, p.Pooled, len(p.Pooled))
	}
	return made, err
}

// storedAs returns the dtype that config.json names.
func storedAs(name string) tensor.DType {
	switch name {
	case "bfloat16":
		return tensor.BF16
	case "float16":
		return tensor.F16
	}
	return tensor.F32
}

// stored converts values to a tensor of dtype d. All values must be finite in that dtype.
func stored(d tensor.DType, values []float32, shape ...int) (tensor.Tensor, error) {
	for i, x := range values {
		if x-x != 0 || d == tensor.F16 && (x > 65504 || x < -65504) {
			return tensor.Tensor{}, fmt.Errorf("element %d: found %v, expected a number that %v has", i, x, d)
		}
	}
	t, err := tensor.New(d, shape...)
	if err != nil {
		return t, err
	}
	return t, tensor.FromFloat32(t.Data, values, d)
}

// latents encodes images. It is safe for concurrent use.
type latents struct {
	pipeline *Pipeline
	ctx      context.Context // of the one BuildCache call that it serves
	dev      backend.Device
	sizes    sizing
	options  CacheOptions

	mu      sync.Mutex
	encoder *vae.VAE
}

// encode returns the latent of an image before normalization, [C, H, W] or [C, 1, H, W].
// Without an autoencoder the latent is the image itself.
func (l *latents) encode(content []byte) (tensor.Tensor, error) {
	img, err := picture.Decode(content)
	if err != nil {
		return tensor.Tensor{}, err
	}
	size := l.sizes.of(picture.SizeOf(img))
	pixels := vae.Picture{Channels: colours, Height: size.Height, Width: size.Width, Values: l.sizes.scale(img, size)}
	if l.pipeline.pixels() {
		return stored(tensor.F32, pixels.Values, pixels.Channels, size.Height, size.Width)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return tensor.Tensor{}, err
	}
	m, err := l.encoder.Encode(l.ctx, pixels)
	if err != nil {
		return tensor.Tensor{}, err
	}
	z := m.Mean
	if l.options.Sample {
		z = m.Sample(l.noise(content, len(z.Values)))
	}
	return l.stored(z)
}

func (l *latents) open() (err error) {
	if l.encoder != nil {
		return nil
	}
	dir, err := l.pipeline.Weights(VAE)
	if err != nil {
		return err
	}
	if l.encoder, err = vae.Open(l.dev, dir, vae.Options{Tile: l.options.Tile}); err != nil {
		return err
	}
	l.pipeline.notes.add(l.encoder.UnreadLine())
	return nil
}

// noise draws noise from the seed and the content of the image, independent of the other
// files in the folder.
func (l *latents) noise(content []byte, n int) []float32 {
	sum := sha256.Sum256(content)
	noise := make([]float32, n)
	flow.NewDraw(l.options.Seed, int(binary.LittleEndian.Uint32(sum[:])), int(binary.LittleEndian.Uint32(sum[4:]))).Posterior(noise)
	return noise
}

func (l *latents) stored(z dit.Latent) (tensor.Tensor, error) {
	shape := []int{z.Channels, z.Height, z.Width}
	if l.encoder.Space().Framed {
		shape = []int{z.Channels, z.Frames, z.Height, z.Width}
	}
	t, err := stored(tensor.F32, z.Values, shape...)
	if err != nil {
		return t, fmt.Errorf("what the autoencoder gives: %w", err)
	}
	return t, nil
}

func (l *latents) close() error {
	if l.encoder == nil {
		return nil
	}
	return l.encoder.Close()
}
