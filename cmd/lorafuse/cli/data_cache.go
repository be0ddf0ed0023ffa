package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/imagefolder"
	"github.com/lorafuse/lorafuse/internal/diffusion"
)

// cacheFlags holds the flags of `data cache`.
type cacheFlags struct {
	modelFlags
	cache, control string
	latents, only  oneWord
	made           diffusion.CacheOptions
	skipBad, json  bool
}

// oneWord is the value of a flag with a fixed list of words.
type oneWord string

// UnmarshalText accepts any text: the flag checks its own list of words.
func (w *oneWord) UnmarshalText(text []byte) error {
	*w = oneWord(text)
	return nil
}

// The words of --latents and --only.
const (
	latentMean   = "mean"
	latentSample = "sample"
	onlyText     = "text"
	onlyPictures = "pictures"
	onlyNothing  = ""
)

func (a *app) dataCache() *cobra.Command {
	var f cacheFlags
	c := &cobra.Command{
		Use:   "cache DIR --model PIPELINE --cache DIR",
		Short: "Cache encoded captions and images of a diffusion dataset",
		Long: `Encode a folder of captioned images once for training a diffusion model: the text
embeddings of each caption and of the empty one, and the latents of each image. lorafuse
train with task: diffusion reads them from the cache, as the Python trainers do.

PIPELINE is a diffusers folder with model_index.json, text_encoder, tokenizer and vae, or
a Hub name, owner/name[@revision]; these parts are downloaded, but not the transformer.
The text encoders are closed before the autoencoder is opened. Existing entries are
kept: after a caption changes only its entry is encoded again, and an interrupted
command resumes. Entries record their sources; a cache of another model is an error
unless --rebuild is given.

Images and captions are read first. If some cannot be used, all of them are listed and
nothing is encoded; with --skip-bad they are left out and counted. The key
diffusion.skip_bad of lorafuse train leaves out the same ones.

Each image is resized to about --resolution squared pixels at the nearest aspect ratio
whose sides are multiples that the model accepts: scaled with Catmull-Rom (Pillow's
bicubic) until it covers that size, then center-cropped. Transparent pixels become
white. For Qwen-Image-Edit, images and control images are not cropped; their sides are
rounded, as in draw.

With --control the images of the same names in that folder are encoded too, for models
that edit images. Text encoders that read images (Qwen-Image-Edit) receive the control
images along with the caption, or the image itself without --control.`,
		Example: `  lorafuse data cache pictures --model path/to/flux --cache output/cache
  lorafuse data cache pictures --model Qwen/Qwen-Image --cache output/cache --resolution 768
  lorafuse data cache pictures --model path/to/flux --cache output/cache --skip-bad
  lorafuse data cache pictures --control originals --model path/to/qwen-image-edit --cache output/cache`,
		Args: args(1, "DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.model == "" {
				return usagef(c.CommandPath(), "--model is missing: a diffusers pipeline, a folder or owner/name on the Hub")
			}
			if f.cache == "" {
				return usagef(c.CommandPath(), "--cache is missing: the cache folder")
			}
			if c.Flags().Changed("seed") && f.latents != latentSample {
				return usagef(c.CommandPath(), "--seed goes with --latents %s", latentSample)
			}
			return a.buildCache(c.Context(), args[0], &f)
		},
	}
	f.modelFlag(c)
	flags := c.Flags()
	flags.StringVar(&f.cache, "cache", "", "cache folder, created if absent")
	flags.StringVar(&f.control, "control", "", "folder of control images, for models that edit images")
	flags.IntVar(&f.made.Side, "resolution", 1024, "side in pixels of a square with the area that images are resized to")
	flags.IntVar(&f.made.Multiple, "multiple", 0, "divisor of the sides; 0 means the model's")
	choose(flags, &f.latents, "latents", latentMean, []string{latentMean, latentSample}, "latents to store: mean of the autoencoder's distribution, or a sample, drawn once for all epochs")
	flags.Uint64Var(&f.made.Seed, "seed", 0, "seed of --latents sample")
	choose(flags, &f.only, "only", onlyNothing, []string{onlyText, onlyPictures}, "encode only text or pictures")
	flags.IntVar(&f.made.Tile, "tile", 0, "tile side in pixels for larger images, to save memory; 0 disables tiling")
	flags.BoolVar(&f.made.Rebuild, "rebuild", false, "replace the entries of a cache of another model")
	flags.BoolVar(&f.skipBad, "skip-bad", false, "leave out images that are unreadable or lack a caption")
	flags.IntVar(&f.made.Workers, "workers", 0, "images read and scaled concurrently; 0 means one per core")
	f.machineFlags(c)
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// check validates the numbers only.
func (f *cacheFlags) check() error {
	for _, n := range []struct {
		flag       string
		value, min int
	}{{"workers", f.made.Workers, 0}, {"resolution", f.made.Side, 1}, {"multiple", f.made.Multiple, 0}, {"tile", f.made.Tile, 0}} {
		if n.value < n.min {
			return fmt.Errorf("data cache: --%s: found %d, expected %d or more", n.flag, n.value, n.min)
		}
	}
	return nil
}

// built is the output of `data cache --json`.
type built struct {
	Cache   string `json:"cache"`
	Entries int    `json:"entries"`
	Built   int    `json:"built"` // of them, now
	// Skipped are the problems of the files that --skip-bad left out.
	Skipped []imagefolder.Problem `json:"skipped,omitempty"`
	// Truncated counts captions that were encoded now and are longer than an encoder reads.
	Truncated []*truncatedCaptions `json:"truncated,omitempty"`
}

// truncatedCaptions counts the captions that one text encoder did not read whole.
type truncatedCaptions struct {
	Captions int    `json:"captions"`
	Caption  string `json:"first_caption"`
	diffusion.Truncation
}

// addTruncated counts a caption.
func (b *built) addTruncated(caption string, t diffusion.Truncation) {
	for _, x := range b.Truncated {
		if x.Encoder == t.Encoder {
			x.Captions++
			return
		}
	}
	b.Truncated = append(b.Truncated, &truncatedCaptions{1, caption, t})
}

func (a *app) buildCache(ctx context.Context, dir string, f *cacheFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	dev, err := a.openDevice(&f.modelFlags, f.machine())
	if err != nil {
		return err
	}
	p, err := a.openPipeline(ctx, "data cache", f.model, diffusion.Single{})
	if err != nil {
		return err
	}
	r := built{Cache: f.cache}
	samples, err := a.albums(ctx, dir, f, &r)
	if err != nil {
		return err
	}
	o := f.made
	o.Sample = f.latents == latentSample
	o.TextOnly, o.PicturesOnly = f.only == onlyText, f.only == onlyPictures
	if o.Workers == 0 {
		o.Workers = runtime.NumCPU()
	}
	o.Progress = a.tasks()
	o.Truncated = r.addTruncated
	stats, err := p.BuildCache(ctx, dev, f.cache, samples, o)
	a.close()
	if err != nil {
		return err
	}
	for _, x := range r.Truncated {
		a.note("note: captions longer than %s reads: %d; first: %q is %v", x.Encoder, x.Captions, firstRunes(x.Caption, 40), x.Truncation)
	}
	if r.Entries, r.Built = stats.Entries, stats.Built; f.json {
		return a.out.json(r)
	}
	a.out.printf("%d entries in %s, %d of them made now\n", stats.Entries, oneLine(f.cache), stats.Built)
	return nil
}

// firstRunes returns the first n runes of s, and … if there are more.
func firstRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// albums reads the folder of images. Images that cannot be used are errors, or with --skip-bad left out.
func (a *app) albums(ctx context.Context, dir string, f *cacheFlags, r *built) ([]cache.Sample, error) {
	o := imagefolder.Options{Control: f.control, Decode: f.only != onlyText}
	folder, err := a.readImageFolder(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	samples, problems := folder.Usable()
	if n := len(problems); n > 0 && f.skipBad && len(samples) > 0 {
		a.noteProblems(problems)
		left := len(folder.Samples) - len(samples)
		a.note("note: %d image%s of %d left out", left, plural(left), folder.Images)
		r.Skipped = problems
	} else if n == 1 {
		return nil, fmt.Errorf("data cache: %v", problems[0])
	} else if n > 1 {
		a.noteProblems(problems)
		return nil, fmt.Errorf("data cache: %s: nothing was encoded: found %d problems, and %d images of %d that can be used, which --skip-bad encodes", dir, n, len(samples), folder.Images)
	}
	for _, n := range folder.Notes() {
		a.note("note: %s", n)
	}
	return samples, nil
}

// noteProblems lists problems of a folder on stderr.
func (a *app) noteProblems(problems []imagefolder.Problem) {
	for _, p := range problems {
		a.note("%v", p)
	}
}
