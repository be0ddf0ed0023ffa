package dit_test

import (
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
)

// A transformer says what its samples are like, which sizes a program needs for them, and
// fills the arrays that a run is given.
func ExampleTransformer() {
	m, err := model.Open("../../../testdata/dit/flux/transformer")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	t := m.Config.Family.(dit.Transformer)
	space := t.Space()
	fmt.Printf("%+v\n", space)

	sample := dit.Sample{
		Latent:   dit.Latent{Channels: space.Channels, Frames: 1, Height: 4, Width: 6, Values: make([]float32, 4*4*6)},
		Prompt:   dit.Prompt{Features: space.Text, Values: make([]float32, 5*space.Text), Pooled: make([]float32, space.Pooled)},
		Timestep: 500, Guidance: 3.5,
	}
	fmt.Println(t.Bounds(2, sample))

	var b data.Batch
	if err := t.Arrays(&b, []dit.Sample{sample, sample}); err != nil {
		log.Fatal(err)
	}
	latents, _ := b.Array(dit.Latents)
	fmt.Println(len(latents)/4, "numbers: 2 samples of 6 tokens of 16 channels")

	sample.Latent.Height = 3
	fmt.Println(t.Arrays(&b, []dit.Sample{sample}))
	// Output:
	// {Channels:4 Multiple:2 Text:32 Pooled:24 Guidance:true Controls:true Unshifted:false}
	// map[image tokens:6 predicted tokens:6 samples:2 text tokens:5 tokens:11]
	// 192 numbers: 2 samples of 6 tokens of 16 channels
	// dit: wrong sample: sample 0: latent: found 3×6, expected multiples of 2
}
