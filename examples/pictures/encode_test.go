package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/tensor"
)

// features is the size of a word embedding.
const features = 32

// word returns the embedding of a word: pseudorandom numbers seeded by the word. There is no
// other text encoder.
func word(w string) []float32 {
	h := fnv.New64a()
	h.Write([]byte(w))
	s := philox.NewStream(h.Sum64(), 0, 0)
	v := make([]float32, features)
	for i := range v {
		v[i] = float32(s.Normal(uint64(i)))
	}
	return v
}

// encode encodes a caption: one token per word, and their sum as the pooled embedding.
func encode(caption string) dit.Prompt {
	p := dit.Prompt{Features: features, Pooled: make([]float32, features)}
	for _, w := range append([]string{"picture"}, strings.Fields(caption)...) {
		v := word(w)
		p.Values = append(p.Values, v...)
		for i, x := range v {
			p.Pooled[i] += x
		}
	}
	return p
}

// text encodes a caption for a cache.
func text(caption string) (e cache.Embedding, err error) {
	p := encode(caption)
	n := len(p.Values) / features
	if e.Embeds, err = tensor.FromFloat32s(p.Values, n, features); err != nil {
		return e, err
	}
	for range n {
		e.Mask = append(e.Mask, 1)
	}
	e.Pooled, err = tensor.FromFloat32s(p.Pooled, features)
	return e, err
}

// pixels converts an image to a latent with values from −1 to 1.
func pixels(m image.Image) dit.Latent {
	b := m.Bounds()
	x := dit.Latent{Channels: 3, Frames: 1, Height: b.Dy(), Width: b.Dx()}
	x.Values = make([]float32, 3*b.Dy()*b.Dx())
	for i := range b.Dy() * b.Dx() {
		red, green, blue, _ := m.At(b.Min.X+i%b.Dx(), b.Min.Y+i/b.Dx()).RGBA()
		for c, v := range []uint32{red, green, blue} {
			x.Values[c*b.Dy()*b.Dx()+i] = float32(v)/32767.5 - 1
		}
	}
	return x
}

// write writes images to a folder, each with a caption file.
func write(dir string, all []scene, s style) (samples []cache.Sample, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	for i, p := range all {
		var file bytes.Buffer
		if err := png.Encode(&file, p.paint(s)); err != nil {
			return nil, err
		}
		x := cache.Sample{Image: filepath.Join(dir, fmt.Sprintf("%04d.png", i)), Caption: filepath.Join(dir, fmt.Sprintf("%04d.txt", i))}
		if err := os.WriteFile(x.Image, file.Bytes(), 0o666); err != nil {
			return nil, err
		}
		if err := os.WriteFile(x.Caption, []byte(p.caption()), 0o666); err != nil {
			return nil, err
		}
		samples = append(samples, x)
	}
	return samples, nil
}
