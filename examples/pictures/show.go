package main

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/lora"
)

// drawSteps is the number of sampling steps per image.
const drawSteps = 24

// show generates all captions without and with the adapter, writes before.png and after.png,
// and prints the scores.
func show(ctx context.Context, adapter string, asked []picture) error {
	pipeline, err := diffusion.Open(modelDir)
	if err != nil {
		return err
	}
	m, t, err := pipeline.OpenTransformer()
	if err != nil {
		return err
	}
	defer m.Close()
	state, err := dialects.LoadState(adapter, m, lora.ModelOf(m.Config.ModelType, m.Modules()), lora.CheckOptions{})
	if err != nil {
		return err
	}
	schedule, err := pipeline.Schedule()
	if err != nil {
		return err
	}
	canvas, err := pipeline.Canvas(t.Space())
	if err != nil {
		return err
	}
	dev, err := backend.Open(backend.Auto, backend.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	h := host.Open(dev, m)
	defer h.Close()
	painter, err := diffusion.NewPainter(h, schedule, pipeline.Style(m.Config))
	if err != nil {
		return err
	}
	defer painter.Close()

	known := templates()
	for _, look := range []struct {
		name  string
		state *lora.State
	}{{"before", nil}, {"after", state}} {
		slot, err := h.NewSlot(look.state)
		if err != nil {
			return err
		}
		drawn, err := draw(ctx, painter, canvas, slot, asked)
		slot.Free()
		if err != nil {
			return err
		}
		s := judge(drawn, asked, known)
		fmt.Printf("%-6s  %2d of %d glow, %2d have the colour and %2d the shape of their caption\n", look.name, s.glowing, s.drawn, s.colour, s.shape)
		if err := save(filepath.Join(outputs, look.name+".png"), drawn); err != nil {
			return err
		}
	}
	return nil
}

// draw generates an image per caption, each from its own noise.
func draw(ctx context.Context, painter *diffusion.Painter, canvas *diffusion.Canvas, slot *engine.Slot, asked []picture) (drawn []image.Image, err error) {
	width, height, err := canvas.Latent(side, side)
	if err != nil {
		return nil, err
	}
	for i, p := range asked {
		x, err := painter.Draw(ctx, slot, diffusion.Drawing{Prompt: encode(p.caption()), Width: width, Height: height, Steps: drawSteps, Seed: uint64(i)})
		if err != nil {
			return nil, err
		}
		pixels, err := canvas.Paint(ctx, x)
		if err != nil {
			return nil, err
		}
		drawn = append(drawn, diffusion.Image(pixels))
	}
	return drawn, nil
}

// save writes images as a grid with one row per shape.
func save(path string, drawn []image.Image) error {
	var rows [][]image.Image
	for len(drawn) > 0 {
		rows, drawn = append(rows, drawn[:len(colours)]), drawn[len(colours):]
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := png.Encode(f, diffusion.Grid(rows)); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
