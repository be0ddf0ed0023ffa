package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/ranks"
)

// drawFlags holds the flags of `draw`.
type drawFlags struct {
	modelFlags
	transformer         diffusion.Single
	prompts, embeddings []string
	negative            string
	negativeEmbedding   string
	controls            []string
	controlSide         int
	size                string
	steps               int
	guidance            float64
	seeds               []string
	weight              float64
	before              bool
	output              string
	tile                int
	json                bool

	width, height int
	numbers       []uint64 // of seeds
	given         func(flag string) bool
}

func (a *app) draw() *cobra.Command {
	var f drawFlags
	c := &cobra.Command{
		Use:   "draw --model MODEL [--adapter PATH] --prompt TEXT --output FILE.png",
		Short: "Generate images with a diffusion model",
		Long: `Generate an image from a prompt with a diffusion pipeline in the layout of diffusers:
Qwen-Image, FLUX.1, FLUX.2, Z-Image or Kandinsky 5. The adapter is a folder written by
PEFT or lorafuse train, or a file in diffusers, kohya or ComfyUI format.

Several prompts and seeds make a grid with a row per prompt and a column per seed.
--before adds the image of the base model to the left of each. A seed gives the same
noise on every machine; the noise differs from torch's. The PNG records the settings as
text that other tools read too.

Steps, guidance and the negative prompt default to the values that diffusers has for the
model. --embedding takes a file from a cache instead of a prompt and needs no text
encoder. If the model has no vae folder, pixels are generated directly.

--control is an input image, for FLUX.1 Kontext, FLUX.2 and Qwen-Image-Edit; FLUX.2 and
Qwen-Image-Edit since 2509 accept several. It is resized to the size that the model
accepts. The output has the same size unless --size is given (Kontext: 1024x1024).

--model may be a Hub name, owner/name[@revision]; only the necessary parts are
downloaded.

--transformer is a single safetensors file that replaces the transformer of the model,
which need not exist. Its tensors have the names of diffusers or of the original
release, as in ComfyUI, in full precision or 8 bits. It may be
owner/name/file.safetensors on the Hub.

With --devices, or under mpirun, the images of a grid are shared; the file is the same.`,
		Example: `  lorafuse draw --model path/to/flux --prompt "a lighthouse at night" --size 768x512 -o lighthouse.png
  lorafuse draw --model path/to/qwen-image -p "a fox" -p "a bear" --seed 1,2,3 --adapter output -o grid.png
  lorafuse draw --model path/to/flux --adapter style.safetensors --adapter-weight 0.7 --before -p "a fox" -o fox.png
  lorafuse draw --model path/to/qwen-image --quantize nf4 --embedding cache/text_embs/fox.txt.safetensors -o fox.png
  lorafuse draw --model path/to/flux --transformer flux1-dev.safetensors -p "a fox" -o fox.png
  lorafuse draw --model path/to/qwen-image-edit --control street.jpg -p "make it rain" -o rain.png
  lorafuse draw --model black-forest-labs/FLUX.1-schnell --prompt "a fox" -o fox.png
  lorafuse draw --model path/to/flux -p "a fox" --seed 1,2,3,4 --devices all -o grid.png`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			f.given = c.Flags().Changed
			if err := f.check(c.CommandPath()); err != nil {
				return err
			}
			return a.onRanks(c.Context(), &f.modelFlags, func(ctx context.Context, a *app, g *ranks.Group) error {
				own := f
				return a.runDraw(ctx, g, &own)
			})
		},
	}
	f.modelFlag(c)
	f.machineFlags(c)
	f.quantizeFlag(c)
	f.devicesFlag(c)
	transformerFlag(c, &f.transformer.Config)
	flags := c.Flags()
	flags.StringVar(&f.transformer.File, "transformer", "", "transformer file that replaces the one of --model")
	flags.StringVarP(&f.adapter, "adapter", "a", "", "PEFT adapter folder, or a file in diffusers, kohya or ComfyUI format")
	flags.Float64Var(&f.weight, "adapter-weight", 1, "factor of the adapter's strength")
	flags.StringArrayVarP(&f.prompts, "prompt", "p", nil, "prompt (repeatable)")
	flags.StringArrayVar(&f.embeddings, "embedding", nil, "file of an encoded prompt, such as text_embs/….safetensors of a cache (repeatable)")
	flags.StringVar(&f.negative, "negative", "", "negative prompt")
	flags.StringVar(&f.negativeEmbedding, "negative-embedding", "", "file of an encoded negative prompt")
	flags.StringArrayVar(&f.controls, "control", nil, "input image, PNG, JPEG or WebP (repeatable if the model accepts several)")
	flags.IntVar(&f.controlSide, "control-resolution", 0, "side in pixels of a square with the area that --control is resized to (default: the model's)")
	flags.StringVar(&f.size, "size", "1024x1024", "width and height in pixels")
	flags.IntVar(&f.steps, "steps", 0, "number of denoising steps (default: the model's)")
	flags.Float64Var(&f.guidance, "guidance", 0, "guidance scale (default: the model's)")
	flags.StringSliceVar(&f.seeds, "seed", []string{"0"}, "seeds of the noise, separated by commas")
	flags.BoolVar(&f.before, "before", false, "also generate without the adapter, to the left")
	flags.StringVarP(&f.output, "output", "o", "", "PNG file to write")
	flags.IntVar(&f.tile, "vae-tile", 0, "tile side in pixels for decoding, to save memory; 0 disables tiling")
	flags.BoolVar(&f.json, "json", false, "print a description of the images as JSON")
	return c
}

// check validates the flags without opening anything.
func (f *drawFlags) check(command string) error {
	switch {
	case len(f.prompts)+len(f.embeddings) == 0:
		return usagef(command, "nothing to draw: --prompt or --embedding")
	case len(f.prompts) > 0 && len(f.embeddings) > 0:
		return usagef(command, "--prompt and --embedding are given, expected one of them")
	case f.given("negative") && f.negativeEmbedding != "":
		return usagef(command, "--negative and --negative-embedding are given, expected one of them")
	case f.given("negative") && len(f.embeddings) > 0:
		return usagef(command, "--negative goes with --prompt; with --embedding it is --negative-embedding")
	case f.output == "":
		return usagef(command, "--output is missing: the PNG file to write")
	case f.adapter == "" && f.before:
		return usagef(command, "--before goes with --adapter")
	case f.adapter == "" && f.given("adapter-weight"):
		return usagef(command, "--adapter-weight goes with --adapter")
	case f.given("control-resolution") && len(f.controls) == 0:
		return usagef(command, "--control-resolution goes with --control")
	case f.given("control-resolution") && (f.controlSide < 1 || f.controlSide > maxSide):
		return usagef(command, "--control-resolution: found %d, expected 1 to %d", f.controlSide, maxSide)
	case !strings.EqualFold(filepath.Ext(f.output), ".png"):
		return usagef(command, "--output: found %q, expected a name that ends in .png", f.output)
	case f.given("steps") && (f.steps < 1 || f.steps > diffusion.MaxSteps):
		return fmt.Errorf("draw: --steps: found %d, expected 1 to %d", f.steps, diffusion.MaxSteps)
	case f.guidance-f.guidance != 0:
		return fmt.Errorf("draw: --guidance: found %v, expected a finite number", f.guidance)
	case f.weight-f.weight != 0:
		return fmt.Errorf("draw: --adapter-weight: found %v, expected a finite number", f.weight)
	case len(f.seeds) == 0:
		return usagef(command, "--seed: found none, expected whole numbers of 0 or more, with commas between them")
	}
	for _, s := range f.seeds {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
		if err != nil {
			return usagef(command, "--seed: found %q, expected whole numbers of 0 or more, with commas between them", s)
		}
		f.numbers = append(f.numbers, n)
	}
	return f.parseSize(command)
}

func (f *drawFlags) parseSize(command string) error {
	w, h, ok := strings.Cut(f.size, "x")
	var wrong error
	if f.width, wrong = strconv.Atoi(w); ok && wrong == nil {
		f.height, wrong = strconv.Atoi(h)
	}
	if !ok || wrong != nil || f.width < 1 || f.height < 1 || f.width > maxSide || f.height > maxSide {
		return usagef(command, "--size: found %q, expected width and height such as 768x512, of %d at most", f.size, maxSide)
	}
	return nil
}

// maxSide is the longest side of a picture.
const maxSide = 1 << 14

func (a *app) runDraw(ctx context.Context, g *ranks.Group, f *drawFlags) error {
	var d *drawing
	var same map[string]string
	err := g.Do(ctx, func(ctx context.Context) (err error) {
		if d, err = a.openDrawing(ctx, f); err == nil && g != nil {
			same, err = d.identity()
		}
		return err
	})
	if d != nil {
		defer d.close()
	}
	if err == nil {
		err = f.compareRanks(ctx, g, d.dev, same)
	}
	if err != nil {
		return err
	}
	r, err := d.draw(ctx, g)
	if err != nil {
		return underWay(err)
	}
	a.close()
	if !a.leads() {
		return nil
	}
	if f.json {
		return a.out.json(r)
	}
	each := r.Seconds / float64(len(r.Pictures))
	a.out.printf("drew %d picture%s in %.1f s, %.1f s each: %s, %dx%d\n", len(r.Pictures), plural(len(r.Pictures)), r.Seconds, each, r.Output, r.Width, r.Height)
	return nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
