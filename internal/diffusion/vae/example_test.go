package vae_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
)

func Example() {
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	const dir = "testdata/kl-tiles"
	v, err := vae.Open(dev, dir, vae.Options{Tile: 32})
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	grey := vae.Picture{Channels: 3, Height: 48, Width: 40, Values: make([]float32, 3*48*40)}
	m, err := v.Encode(context.Background(), grey)
	if err != nil {
		log.Fatal(err)
	}
	z := m.Mean
	fmt.Println("latent:", z.Channels, "channels of", z.Height, "by", z.Width)
	p, err := v.Decode(context.Background(), z)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("picture:", p.Channels, "channels of", p.Height, "by", p.Width)
	scale, err := vae.ReadScale(dir, func() (string, error) { return dir, nil }) // needs no device
	if err != nil {
		log.Fatal(err)
	}
	scale.Normalise(z) // what a transformer takes
	fmt.Println("scaled by", scale.Factor[0], "around", scale.Mean[0])
	// Output:
	// latent: 4 channels of 24 by 20
	// picture: 3 channels of 48 by 40
	// scaled by 0.3611 around 0.1159
}
