package diffusion

import (
	"encoding/binary"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the tensors of an encoded prompt.
const (
	embedsName = "prompt_embeds"
	maskName   = "prompt_embeds_mask"
	pooledName = "pooled_prompt_embeds"
)

// ReadPrompt reads an encoded prompt from a text_embs file of a cache, built by this package
// or by a Python trainer. Errors: ErrPrompt, and errors of cache.LoadEmbeddings.
func ReadPrompt(path string) (p dit.Prompt, err error) {
	t, err := cache.LoadEmbeddings(path)
	if err != nil {
		return p, err
	}
	embeds, ok := t[embedsName]
	if !ok {
		return p, fmt.Errorf("diffusion: %w: %s has no tensor %s", ErrPrompt, path, embedsName)
	}
	if len(embeds.Shape) == 3 && embeds.Shape[0] == 1 {
		embeds.Shape = embeds.Shape[1:]
	}
	if len(embeds.Shape) != 2 || embeds.Shape[0] < 1 || embeds.Shape[1] < 1 {
		return p, fmt.Errorf("diffusion: %w: %s: %s: found shape %v, expected [tokens, features]", ErrPrompt, path, embedsName, embeds.Shape)
	}
	p.Features = embeds.Shape[1]
	if p.Values, err = embeds.Float32s(); err != nil {
		return p, fmt.Errorf("diffusion: %s: %s: %w", path, embedsName, err)
	}
	if mask, ok := t[maskName]; ok {
		if mask.DType != tensor.I64 || len(mask.Data) != 8*embeds.Shape[0] {
			return p, fmt.Errorf("diffusion: %w: %s: %s: found %v %v, expected i64 [%d]", ErrPrompt, path, maskName, mask.DType, mask.Shape, embeds.Shape[0])
		}
		for i := range embeds.Shape[0] {
			p.Mask = append(p.Mask, binary.LittleEndian.Uint64(mask.Data[8*i:]) != 0)
		}
	}
	if pooled, ok := t[pooledName]; ok {
		if p.Pooled, err = pooled.Float32s(); err != nil {
			return p, fmt.Errorf("diffusion: %s: %s: %w", path, pooledName, err)
		}
	}
	return p, nil
}
