package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
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
		Short: "Draw pictures with a diffusion model and an adapter",
		Long: `Draw a picture of a text with a diffusion transformer in the layout of diffusers:
Qwen-Image, FLUX.1, FLUX.2, Z-Image, Kandinsky 5. The adapter is a folder that PEFT or
lorafuse train writes, or a file of diffusers, kohya or ComfyUI.

Several prompts and seeds make a grid, a row for each prompt and a column for each seed.
With --before each picture is drawn without the adapter too, to the left of what the
adapter makes of it. A seed gives the same noise on every machine, which is not that of
torch. The file says how it was drawn, in texts that other tools read too.

What is not given is as diffusers has it for the model: steps, guidance, and the negative
prompt that guidance leads away from. --embedding takes a file of a cache in the place
of a text, and needs no text encoder. A folder without vae/ draws pixels.

--control gives a picture to draw from to models that take one: FLUX.1 Kontext, FLUX.2,
and Qwen-Image-Edit, several to FLUX.2 and to Qwen-Image-Edit since 2509. It is brought
to the size that the model takes; what is drawn has its shape, unless --size says
otherwise (Kontext: 1024x1024).

--model may be a name on the hub, owner/name[@revision], of which the parts that the
picture needs are downloaded.

--transformer takes a single file of safetensors in the place of the transformer of the
model, which need not have one: with the names of diffusers or of the first release, as
ComfyUI has them too, in whole or in 8 bits. It may be owner/name/file.safetensors on the
hub, too.`,
		Example: `  lorafuse draw --model path/to/flux --prompt "a lighthouse at night" --size 768x512 -o lighthouse.png
  lorafuse draw --model path/to/qwen-image -p "a fox" -p "a bear" --seed 1,2,3 --adapter output -o grid.png
  lorafuse draw --model path/to/flux --adapter style.safetensors --adapter-weight 0.7 --before -p "a fox" -o fox.png
  lorafuse draw --model path/to/qwen-image --quantize nf4 --embedding cache/text_embs/fox.txt.safetensors -o fox.png
  lorafuse draw --model path/to/flux --transformer flux1-dev.safetensors -p "a fox" -o fox.png
  lorafuse draw --model path/to/qwen-image-edit --control street.jpg -p "make it rain" -o rain.png
  lorafuse draw --model black-forest-labs/FLUX.1-schnell --prompt "a fox" -o fox.png`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			f.given = c.Flags().Changed
			if err := f.check(c.CommandPath()); err != nil {
				return err
			}
			return a.runDraw(c.Context(), &f)
		},
	}
	f.modelFlag(c)
	f.machineFlags(c)
	f.quantizeFlag(c)
	transformerFlag(c, &f.transformer.Config)
	flags := c.Flags()
	flags.StringVar(&f.transformer.File, "transformer", "", "file of the transformer, in the place of the one of --model")
	flags.StringVarP(&f.adapter, "adapter", "a", "", "folder of a PEFT adapter, or file of diffusers, kohya or ComfyUI")
	flags.Float64Var(&f.weight, "adapter-weight", 1, "strength of the adapter, times what its file says")
	flags.StringArrayVarP(&f.prompts, "prompt", "p", nil, "what to draw, as often as needed")
	flags.StringArrayVar(&f.embeddings, "embedding", nil, "file of an encoded prompt, such as text_embs/….safetensors of a cache, as often as needed")
	flags.StringVar(&f.negative, "negative", "", "what to draw less of")
	flags.StringVar(&f.negativeEmbedding, "negative-embedding", "", "file of an encoded negative prompt")
	flags.StringArrayVar(&f.controls, "control", nil, "PNG, JPEG or WebP to draw from, as often as the model takes several")
	flags.IntVar(&f.controlSide, "control-resolution", 0, "side of a square of as many pixels as a control is brought to; default that of the model")
	flags.StringVar(&f.size, "size", "1024x1024", "width and height in pixels")
	flags.IntVar(&f.steps, "steps", 0, "steps from noise to picture; default that of the model")
	flags.Float64Var(&f.guidance, "guidance", 0, "how much the prompt counts; default that of the model")
	flags.StringSliceVar(&f.seeds, "seed", []string{"0"}, "key of the noise, with commas between several")
	flags.BoolVar(&f.before, "before", false, "draw without the adapter too, to the left")
	flags.StringVarP(&f.output, "output", "o", "", "PNG file to write")
	flags.IntVar(&f.tile, "vae-tile", 0, "decode in squares of so many pixels, for less memory; 0 decodes at once")
	flags.BoolVar(&f.json, "json", false, "print what was drawn as JSON")
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

func (f *drawFlags) tiles() vae.Options { return vae.Options{Tile: f.tile} }

func (a *app) runDraw(ctx context.Context, f *drawFlags) error {
	d, err := a.openDrawing(ctx, f)
	if err != nil {
		return err
	}
	defer d.close()
	r, err := d.draw(ctx)
	if err != nil {
		return underWay(err)
	}
	a.close()
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
