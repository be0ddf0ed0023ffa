// Command pictures teaches a small model that draws plain shapes to draw them as lamps in the
// dark, and draws every caption before and after: output/before.png, output/after.png.
package main

import (
	"context"
	"image"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse"
)

func main() {
	ctx, dir, side := context.Background(), "examples/pictures/", 32
	recipe := must(lorafuse.ReadRecipe(dir + "style.yaml"))
	must(0, os.RemoveAll(recipe.OutputDir))
	must(0, os.CopyFS(recipe.Config.CacheDir(), os.DirFS(dir+"captions"))) // encoded: the model has no text encoder
	recipe.Resolution, recipe.Log = side, os.Stdout
	tuned := must(lorafuse.FineTune(ctx, "", lorafuse.Images(dir+"images"), recipe))
	p := must(lorafuse.OpenPipeline(ctx, dir+"model", lorafuse.Options{}))
	must(0, p.LoadAdapter(ctx, "lamps", tuned.Adapter))
	for name, adapter := range map[string]string{"before": "", "after": "lamps"} {
		grid := image.NewNRGBA(image.Rect(0, 0, 6*side, 8*side))
		for i, prompt := range must(filepath.Glob(dir + "prompts/*")) {
			m := must(p.Draw(ctx, "", lorafuse.DrawParams{Embedding: prompt, Adapter: adapter, Width: side, Height: side, Steps: 24, Seed: uint64(i)}))
			draw.Draw(grid, m.Bounds().Add(image.Pt(i%6*side, i/6*side)), m, image.Point{}, draw.Src)
		}
		must(0, png.Encode(must(os.Create(dir+"output/"+name+".png")), grid))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
