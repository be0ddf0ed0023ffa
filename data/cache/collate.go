package cache

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// Encoded is a sample as the encoders have left it.
type Encoded struct {
	Name    string // for errors
	Text    Embedding
	Latent  tensor.Tensor // [C, …, H, W]
	Control tensor.Tensor // the same, zero for none
}

// Batch is several samples, padded to one size. Element types are those of the
// samples; padding is zero.
type Batch struct {
	Latents     tensor.Tensor // [B, C, …, H, W], smaller ones in the upper left corner
	LatentMask  tensor.Tensor // [B, H, W] F32: 1 where Latents is real
	Embeds      tensor.Tensor // [B, L, D], shorter ones at the start
	EmbedsMask  tensor.Tensor // [B, L] I64: 1 for a token
	Controls    tensor.Tensor // as Latents, zero where the samples have none
	ControlMask tensor.Tensor // as LatentMask
}

// Collate makes a batch.
//
// A loss over latents must count what is real alone, or it depends on what else
// is in the batch: Σ mask·error² / (elements of a pixel · Σ mask) is the mean
// over the elements of the samples, padded or not.
//
// It fails with ErrTensor where element types, features or channels differ
// between samples, and where only some have a control image, and with ErrOption
// for no samples.
func Collate(samples []Encoded) (*Batch, error) {
	if len(samples) == 0 {
		return nil, fmt.Errorf("cache: a batch of no samples: %w", ErrOption)
	}
	b := &Batch{}
	var err error
	if b.Embeds, b.EmbedsMask, err = collateText(samples); err != nil {
		return nil, err
	}
	if b.Latents, b.LatentMask, err = collateImages(samples, "image", func(e *Encoded) tensor.Tensor { return e.Latent }); err != nil {
		return nil, err
	}
	controls := 0
	for i := range samples {
		if samples[i].Control.DType != tensor.Invalid {
			controls++
		}
	}
	switch controls {
	case 0:
		return b, nil
	case len(samples):
		b.Controls, b.ControlMask, err = collateImages(samples, "control image", func(e *Encoded) tensor.Tensor { return e.Control })
		return b, err
	}
	return nil, fmt.Errorf("cache: found control images for %d of %d samples, expected all or none: %w", controls, len(samples), ErrTensor)
}

func collateText(samples []Encoded) (embeds, mask tensor.Tensor, err error) {
	longest := 0
	first := &samples[0].Text.Embeds
	if err := paddable(embedsName, *first, samples); err != nil {
		return embeds, mask, err
	}
	for i := range samples {
		e := &samples[i]
		if _, err := e.Text.tensors(); err != nil {
			return embeds, mask, fmt.Errorf("cache: %s: %w", e.Name, err)
		}
		x := &e.Text.Embeds
		if x.DType != first.DType || x.Shape[1] != first.Shape[1] {
			return embeds, mask, fmt.Errorf("cache: %s: %s: found %v%v, expected %v and %d features as in %s: %w",
				e.Name, embedsName, x.DType, x.Shape, first.DType, first.Shape[1], samples[0].Name, ErrTensor)
		}
		longest = max(longest, x.Shape[0])
	}
	if embeds, err = tensor.New(first.DType, len(samples), longest, first.Shape[1]); err != nil {
		return embeds, mask, fmt.Errorf("cache: %w", err)
	}
	if mask, err = tensor.New(tensor.I64, len(samples), longest); err != nil {
		return embeds, mask, fmt.Errorf("cache: %w", err)
	}
	row := longest * first.Shape[1] * first.DType.Size()
	for i := range samples {
		copy(embeds.Data[i*row:], samples[i].Text.Embeds.Data)
		for j, m := range samples[i].Text.Mask {
			binary.LittleEndian.PutUint64(mask.Data[8*(i*longest+j):], uint64(m))
		}
	}
	return embeds, mask, nil
}

func collateImages(samples []Encoded, what string, of func(*Encoded) tensor.Tensor) (latents, mask tensor.Tensor, err error) {
	first := of(&samples[0])
	if err := paddable(what, first, samples); err != nil {
		return latents, mask, err
	}
	height, width := 0, 0
	for i := range samples {
		x := of(&samples[i])
		if _, err := latentTensors(x); err != nil {
			return latents, mask, fmt.Errorf("cache: %s: %s: %w", samples[i].Name, what, err)
		}
		if x.DType != first.DType || !slices.Equal(outer(x), outer(first)) {
			return latents, mask, fmt.Errorf("cache: %s: %s: found %v%v, expected %v and %v before height and width as in %s: %w",
				samples[i].Name, what, x.DType, x.Shape, first.DType, outer(first), samples[0].Name, ErrTensor)
		}
		h, w := plane(x)
		height, width = max(height, h), max(width, w)
	}
	shape := append(append([]int{len(samples)}, outer(first)...), height, width)
	if latents, err = tensor.New(first.DType, shape...); err != nil {
		return latents, mask, fmt.Errorf("cache: %w", err)
	}
	if mask, err = tensor.New(tensor.F32, len(samples), height, width); err != nil {
		return latents, mask, fmt.Errorf("cache: %w", err)
	}
	planes := 1 // of a sample
	for _, d := range outer(first) {
		planes *= d
	}
	size := first.DType.Size()
	for i := range samples {
		x := of(&samples[i])
		h, w := plane(x)
		for p := range planes {
			for y := range h {
				copy(latents.Data[(((i*planes+p)*height+y)*width)*size:], x.Data[(p*h+y)*w*size:][:w*size])
			}
		}
		for y := range h {
			for z := range w {
				binary.LittleEndian.PutUint32(mask.Data[4*((i*height+y)*width+z):], math.Float32bits(1))
			}
		}
	}
	return latents, mask, nil
}

// paddable refuses elements that share bytes with others.
func paddable(what string, first tensor.Tensor, samples []Encoded) error {
	if first.DType.Bits() > 0 && first.DType.Size() == 0 {
		return fmt.Errorf("cache: %s: %s: found %v, expected a type of whole bytes: %w", samples[0].Name, what, first.DType, ErrTensor)
	}
	return nil
}

// outer are the dimensions of a latent before height and width.
func outer(x tensor.Tensor) []int { return x.Shape[:max(len(x.Shape)-2, 0)] }

// plane is the height and the width of a latent.
func plane(x tensor.Tensor) (height, width int) {
	n := len(x.Shape)
	return x.Shape[n-2], x.Shape[n-1]
}
