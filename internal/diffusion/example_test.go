package diffusion_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/host"
)

// A small FLUX draws a latent of a text that was encoded elsewhere.
func Example() {
	err := func() error {
		pipeline, err := diffusion.Open("../../testdata/dit/flux")
		if err != nil {
			return err
		}
		m, transformer, err := pipeline.OpenTransformer()
		if err != nil {
			return err
		}
		defer m.Close()
		schedule, err := pipeline.Schedule()
		if err != nil {
			return err
		}
		dev, err := backend.Open(backend.CPU, backend.Options{})
		if err != nil {
			return err
		}
		defer dev.Close()
		h := host.Open(dev, m)
		defer h.Close()
		slot, err := h.NewSlot(nil)
		if err != nil {
			return err
		}
		defer slot.Free()
		painter, err := diffusion.NewPainter(h, schedule, pipeline.Style(m.Config))
		if err != nil {
			return err
		}
		defer painter.Close()
		space := transformer.Space()
		text := dit.Prompt{Features: space.Text, Values: make([]float32, 7*space.Text), Pooled: make([]float32, space.Pooled)}
		latent, err := painter.Draw(context.Background(), slot, diffusion.Drawing{Prompt: text, Width: 8, Height: 4, Steps: 3, Seed: 1})
		fmt.Println(latent.Channels, latent.Height, latent.Width)
		return err
	}()
	if err != nil {
		fmt.Println(err)
	}
	// Output: 4 4 8
}
