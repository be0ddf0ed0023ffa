package train_test

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/train/task/flowmatching"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/train/config"
)

// studio is a pipeline folder, and pictures with a cache.
type studio struct {
	t        testing.TB
	dir      string
	features int // of a token of text
	pooled   int
	controls bool
}

// newStudio has a tiny pipeline of a transformer of the goldens.
func newStudio(t testing.TB, transformer string) *studio {
	s := &studio{t: t, dir: t.TempDir(), controls: strings.Contains(transformer, "edit")}
	s.copy("model/transformer", "../../testdata/dit/"+transformer+"/transformer")
	m, err := model.ReadConfig(s.path("model/transformer"))
	require.NoError(t, err)
	space := m.Family.(dit.Transformer).Space()
	s.features, s.pooled = space.Text, space.Pooled
	vae, class := "vae-qwen", "AutoencoderKLQwenImage"
	if transformer == "flux" {
		vae, class = "vae-flux", "AutoencoderKL"
	}
	s.copy("model/vae", "../../testdata/dit/"+vae+"/vae")
	s.copy("model/scheduler", "../../testdata/dit/sampling-flux/scheduler")
	s.write("model/model_index.json", fmt.Sprintf(`{"_class_name": "APipeline", "transformer": ["diffusers", %q], "vae": ["diffusers", %q], "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"], "text_encoder": ["transformers", "Y"]}`, m.Architecture, class))
	return s
}

func (s *studio) path(name string) string { return filepath.Join(s.dir, name) }

func (s *studio) copy(to, from string) {
	require.NoError(s.t, os.MkdirAll(filepath.Dir(s.path(to)), 0o777))
	require.NoError(s.t, os.CopyFS(s.path(to), os.DirFS(from)))
}

func (s *studio) write(name, text string) {
	require.NoError(s.t, os.MkdirAll(filepath.Dir(s.path(name)), 0o777))
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(text), 0o666))
}

// picture draws nothing.
func (s *studio) picture(name string, shade int) {
	require.NoError(s.t, os.MkdirAll(filepath.Dir(s.path(name)), 0o777))
	f, err := os.Create(s.path(name))
	require.NoError(s.t, err)
	require.NoError(s.t, png.Encode(f, image.NewGray(image.Rect(0, 0, shade+1, 1))))
	require.NoError(s.t, f.Close())
}

// shoot makes a picture of each size of latents, with captions of different lengths, and
// their cache.
func (s *studio) shoot(sizes ...[2]int) {
	c := s.cache("cache")
	text := func(tokens int, number uint32) func(string) (cache.Embedding, error) {
		return func(string) (cache.Embedding, error) {
			e := cache.Embedding{Embeds: s.random(number, tokens, s.features), Mask: slices.Repeat([]int64{1}, tokens)}
			if s.pooled > 0 {
				e.Pooled = s.random(number+1, s.pooled)
			}
			return e, nil
		}
	}
	_, err := c.Empty(s.t.Context(), text(2, 0))
	require.NoError(s.t, err)
	for i, size := range sizes {
		name := fmt.Sprintf("pictures/%03d", i)
		s.picture(name+".png", i)
		s.write(name+".txt", fmt.Sprintf("picture %d", i))
		number := uint32(10 * (i + 1))
		_, err := c.Text(s.t.Context(), s.path(name+".txt"), text(3+i%4, number))
		require.NoError(s.t, err)
		latent := func([]byte) (tensor.Tensor, error) { return s.random(number+2, 4, 1, size[0], size[1]), nil }
		_, err = c.Image(s.t.Context(), s.path(name+".png"), latent)
		require.NoError(s.t, err)
		if s.controls {
			control := fmt.Sprintf("controls/%03d.png", i)
			s.picture(control, i)
			_, err = c.Control(s.t.Context(), s.path(control), latent)
			require.NoError(s.t, err)
		}
	}
}

// cache opens a cache of the pipeline, which has no text encoder.
func (s *studio) cache(name string) *cache.Cache {
	p, err := diffusion.Open(s.path("model"))
	require.NoError(s.t, err)
	o, err := p.CacheOptions(diffusion.CacheOptions{PicturesOnly: true})
	require.NoError(s.t, err)
	o.Text = cache.Recipe{Model: "an encoder"}
	c, err := cache.Open(s.path(name), o)
	require.NoError(s.t, err)
	return c
}

func (s *studio) random(number uint32, shape ...int) tensor.Tensor {
	x, err := tensor.New(tensor.F32, shape...)
	require.NoError(s.t, err)
	values, numbers := make([]float32, x.NumElements()), philox.NewStream(3, number, 1)
	for i := range values {
		values[i] = float32(numbers.Normal(uint64(i)))
	}
	x, err = tensor.Tensor{DType: tensor.F32, Shape: shape, Data: tensor.BytesOf(values)}.Convert(tensor.BF16)
	require.NoError(s.t, err)
	return x
}

// sets are the settings of a run.
func (s *studio) sets(out string, sets ...string) []string {
	all := []string{
		"task=diffusion", "model=" + s.path("model"), "output_dir=" + s.path(out), "diffusion.images=" + s.path("pictures"), "diffusion.cache=" + s.path("cache"),
		"adapter.r=4", "adapter.lora_alpha=8", "adapter.init_lora_weights=gaussian", "batch_size=2", "steps=6", "learning_rate=0.01", "log.plot=false",
		"backend=" + testdevice.Backend(), "precision=f32",
	}
	if s.controls {
		all = append(all, "diffusion.controls="+s.path("controls"))
	}
	return append(all, sets...)
}

func (s *studio) config(out string, sets ...string) *config.Config {
	c, err := config.Parse("test", nil, s.sets(out, sets...)...)
	require.NoError(s.t, err)
	return c
}

// figures are what a run has recorded under a name.
func figures(t testing.TB, c *config.Config, name string) (all []float64) {
	records, err := events.ReadMetrics(filepath.Join(c.OutputDir, "metrics.jsonl"))
	require.NoError(t, err)
	for _, x := range records {
		if v, ok := x.Value(name); ok {
			all = append(all, v)
		}
	}
	return all
}

// rest is all that a run leaves but its speed.
func rest(t *testing.T, c *config.Config, s *train.Summary) string {
	file, err := os.ReadFile(filepath.Join(c.OutputDir, dialects.File))
	require.NoError(t, err)
	return fmt.Sprint(figures(t, c, events.Loss), figures(t, c, "grad_norm"), adapterHash(t, c.OutputDir, train.AdapterDir), s.Tokens, s.LastLoss, len(file), file)
}

// three sizes, of which the last batches are not full.
var threeSizes = [][2]int{{4, 4}, {4, 8}, {8, 4}, {4, 4}, {4, 8}, {4, 4}, {4, 8}}

// TestDiffusion: a pipeline is trained on pictures of three sizes, in one program, and what
// is saved is what PEFT and diffusers load.
func TestDiffusion(t *testing.T) {
	for name, targets := range map[string]int{"qwenimage": 16, "flux": 28, "qwenimage-edit": 16, "qwenimage-edit-zero-cond": 16} {
		t.Run(name, func(t *testing.T) {
			s := newStudio(t, name)
			s.shoot(threeSizes...)
			c := s.config("out", "diffusion.caption_dropout_rate=0.3", "save_steps=3", "log.plot=true")
			var notes []string
			r, err := train.New(t.Context(), c, train.Observer{Note: func(text string) { notes = append(notes, text) }})
			require.NoError(t, err)
			defer r.Close()
			sum, err := r.Train(t.Context())
			require.NoError(t, err)
			require.Contains(t, strings.Join(notes, "\n"), "data     7 pictures of 3 sizes, 5 steps per epoch")
			require.Len(t, figures(t, c, events.Loss), 6)
			require.Len(t, figures(t, c, "images_per_second"), 6)
			require.Equal(t, "images", sum.Unit)
			require.GreaterOrEqual(t, sum.Tokens, int64(7+1))
			require.FileExists(t, filepath.Join(c.OutputDir, "loss.svg"))

			m, err := model.Open(s.path("model/transformer"))
			require.NoError(t, err)
			defer m.Close()
			modules := lora.ModelOf(m.Config.ModelType, m.Modules())
			for _, path := range []string{sum.Adapter, filepath.Join(c.OutputDir, dialects.File), filepath.Join(c.OutputDir, "checkpoint-3", dialects.File)} {
				a, err := dialects.Open(path, modules, dialects.Options{})
				require.NoError(t, err)
				require.Nil(t, a.Config.TaskType)
				require.Equal(t, 8.0, a.Config.LoraAlpha)
				p, err := lora.NewPlacement(a.Config, modules)
				require.NoError(t, err)
				require.Len(t, p.Tensors(), targets)
				a.Close()
			}

			// Another run goes on from either form alike.
			all := [][]float64{figures(t, c, events.Loss)}
			for i, from := range []string{sum.Adapter, filepath.Join(c.OutputDir, dialects.File)} {
				on := s.config(fmt.Sprint("on", i), "steps=2", "threads=1")
				on.Adapter, on.InitAdapter = config.Default().Adapter, from
				_, err := trainUntil(t, t.Context(), on)
				require.NoError(t, err)
				all = append(all, figures(t, on, events.Loss))
			}
			require.Equal(t, all[1], all[2])
			require.NotEqual(t, all[0][:2], all[1])
		})
	}
}

// LoHa and LoKr are trained, saved for PEFT and in the form of LyCORIS, and trained further from either alike.
func TestDiffusionLyCORIS(t *testing.T) {
	for name, more := range map[string]string{"loha": "adapter.r=2", "lokr": "adapter.decompose_factor=4"} {
		s := newStudio(t, "flux")
		s.shoot(threeSizes...)
		c := s.config("out", "adapter.init_lora_weights=true", "adapter.lycoris="+name, more)
		r, err := train.New(t.Context(), c, train.Observer{})
		require.NoError(t, err)
		sum, err := r.Train(t.Context())
		require.NoError(t, err)
		r.Close()
		require.NoFileExists(t, filepath.Join(c.OutputDir, dialects.File))
		var all [][]float64
		for i, from := range []string{sum.Adapter, filepath.Join(c.OutputDir, "lycoris.safetensors")} {
			on := s.config(fmt.Sprint("on", i), "steps=2", "threads=1")
			on.Adapter, on.InitAdapter = config.Default().Adapter, from
			_, err := trainUntil(t, t.Context(), on)
			require.NoError(t, err)
			all = append(all, figures(t, on, events.Loss))
		}
		require.Equal(t, all[0], all[1])
		require.NotEqual(t, figures(t, c, events.Loss)[:2], all[0], "the adapter has been trained")
	}
}

// TestDiffusionResumed: a run that is interrupted after any step goes on to the same bits,
// and not with other pictures, another schedule or another autoencoder.
func TestDiffusionResumed(t *testing.T) {
	s := newStudio(t, "flux")
	s.shoot(threeSizes...)
	sets := []string{"diffusion.caption_dropout_rate=0.3", "adapter.lora_dropout=0.1", "gradient_accumulation_steps=2", "diffusion.timesteps=logit_normal"}
	whole := s.config("whole", sets...)
	sum, err := trainUntil(t, context.Background(), whole)
	require.NoError(t, err)
	want := rest(t, whole, sum)
	for stop := 1; stop < 6; stop++ {
		c := s.config(fmt.Sprint("stopped", stop), sets...)
		ctx, cancel := context.WithCancel(context.Background())
		r, err := train.New(t.Context(), c, train.Observer{Step: func(r train.Report) {
			if r.Step == stop {
				cancel()
			}
		}})
		require.NoError(t, err)
		_, err = r.Train(ctx)
		require.ErrorIs(t, err, train.ErrInterrupted)
		r.Close()
		c.Resume = "latest"
		sum, err := trainUntil(t, context.Background(), c)
		require.NoError(t, err)
		require.Equal(t, want, rest(t, c, sum), stop)
	}

	c := s.config("stopped1", append(sets, "resume="+s.path("stopped1/checkpoint-1"))...)
	for says, change := range map[string]func(c *config.Config){
		"diffusion.timesteps was ":              func(c *config.Config) { c.Diffusion.Timesteps = "mode" },
		"diffusion.weighting was none":          func(c *config.Config) { c.Diffusion.Weighting = "cosmap" },
		"diffusion.guidance was 1, is now 3.5":  func(c *config.Config) { c.Diffusion.Guidance = 3.5 },
		"diffusion.vae was sha256 ":             func(c *config.Config) { c.Diffusion.VAE = "none" },
		"diffusion.caption_dropout_rate was 0.": func(c *config.Config) { c.Diffusion.CaptionDropoutRate = 0.2 },
	} {
		other := *c
		change(&other)
		_, err := train.New(t.Context(), &other, train.Observer{})
		require.ErrorIs(t, err, train.ErrCheckpoint)
		require.ErrorContains(t, err, says)
	}
	s.shoot(append(slices.Clone(threeSizes), [2]int{4, 4})...)
	_, err = train.New(t.Context(), c, train.Observer{})
	require.ErrorIs(t, err, train.ErrCheckpoint)
	require.ErrorContains(t, err, "data.train was pictures ")
}

// TestDiffusionBatches: losses do not depend on how a step is cut in micro-batches, nor on
// samples that fill a batch and count for nothing.
func TestDiffusionBatches(t *testing.T) {
	s := newStudio(t, "qwenimage")
	s.shoot([2]int{4, 4}, [2]int{4, 4}, [2]int{4, 4})
	sets := []string{"data.shuffle=false", "steps=3"}
	losses := func(more ...string) []float64 {
		c := s.config(strings.Join(more, "-"), append(slices.Clone(sets), more...)...)
		_, err := trainUntil(t, context.Background(), c)
		require.NoError(t, err)
		return figures(t, c, events.Loss)
	}
	want := losses("batch_size=3")
	require.InDeltaSlice(t, want, losses("batch_size=4"), 1e-5, "one of four counts for nothing")
	// Samples are numbered through a step, as they are here.
	require.InDeltaSlice(t, want, losses("batch_size=1", "gradient_accumulation_steps=3"), 1e-5)
	plain := losses("batch_size=3", "threads=1")
	require.Equal(t, plain, losses("batch_size=3", "threads=1", "activation_checkpointing=true"))
	for _, base := range []string{"int8", "nf4"} {
		require.InDeltaSlice(t, want, losses("batch_size=3", "quantize="+base), 0.2, base)
	}
}

// TestDiffusionInMemory: a budget has layers recomputed and micro-batches cut, and the
// samples stay what they are.
func TestDiffusionInMemory(t *testing.T) {
	s := newStudio(t, "flux")
	s.shoot([2]int{48, 48}, [2]int{48, 32}, [2]int{48, 48}, [2]int{48, 48}, [2]int{48, 48})
	c := s.config("plain", "batch_size=4", "steps=2")
	m, _, err := train.DryRun(t.Context(), c, train.Observer{})
	require.NoError(t, err)
	_, err = trainUntil(t, t.Context(), c)
	require.NoError(t, err)
	for share := int64(1); ; share++ { // what the process has changes in between
		require.Less(t, share, int64(10))
		tight := s.config(fmt.Sprint("tight", share), "batch_size=4", "steps=2", fmt.Sprintf("memory=%d", m.Resident()-m.Activations*share/10))
		debug.FreeOSMemory()
		r, err := train.New(t.Context(), tight, train.Observer{})
		if err != nil || r.Fit().Recomputed+r.Fit().Cut < 2 {
			continue
		}
		_, err = r.Train(t.Context())
		r.Close()
		require.NoError(t, err)
		require.InDeltaSlice(t, figures(t, c, events.Loss), figures(t, tight, events.Loss), 1e-5)
		break
	}
	_, _, err = train.DryRun(t.Context(), s.config("none", fmt.Sprintf("memory=%d", 1<<20)), train.Observer{})
	require.ErrorContains(t, err, "pictures of fewer pixels")
}

// TestDiffusionErrors: bad input is named.
func TestDiffusionErrors(t *testing.T) {
	s := newStudio(t, "qwenimage")
	s.shoot([2]int{4, 4}, [2]int{4, 4})
	open := func(sets ...string) error {
		r, err := train.New(t.Context(), s.config("out", sets...), train.Observer{})
		if err == nil {
			r.Close()
		}
		return err
	}
	require.NoError(t, open())

	s.write("pictures/left.txt", "a caption without a picture")
	err := open()
	require.ErrorIs(t, err, flowmatching.ErrPictures)
	require.ErrorContains(t, err, "left.txt: orphan caption: expected an image left.png")
	require.NoError(t, os.Remove(s.path("pictures/left.txt")))
	s.picture("pictures/new.png", 40)
	require.ErrorContains(t, open(), "new.png: missing caption: expected new.txt")
	require.NoError(t, open("diffusion.skip_bad=true"))
	require.NoError(t, os.Rename(s.path("pictures"), s.path("others")))
	s.picture("pictures/new.png", 40)
	require.ErrorContains(t, open("diffusion.skip_bad=true"), "new.png: missing caption: expected new.txt")
	require.NoError(t, os.RemoveAll(s.path("pictures")))
	require.NoError(t, os.Rename(s.path("others"), s.path("pictures")))
	s.write("pictures/new.txt", "not in the cache")
	err = open()
	require.ErrorIs(t, err, cache.ErrMissing)
	require.ErrorContains(t, err, "new.txt.safetensors: no such entry; lorafuse data cache builds it")
	require.NoError(t, os.Remove(s.path("pictures/new.png")))
	require.NoError(t, os.Remove(s.path("pictures/new.txt")))

	s.write("pictures/001.txt", "another caption")
	require.ErrorContains(t, open(), "001.txt.safetensors: its source has changed: stale entry; lorafuse data cache builds it")
	s.write("pictures/001.txt", "picture 1")

	require.ErrorContains(t, open("diffusion.controls="+s.path("none")), "none")
	require.NoError(t, os.Rename(s.path("model/vae"), s.path("model/elsewhere")))
	err = open()
	require.ErrorIs(t, err, diffusion.ErrPart)
	require.ErrorContains(t, err, "diffusion.vae: ")
	require.NoError(t, open("diffusion.vae="+s.path("model/elsewhere")))
	require.NoError(t, open("diffusion.vae=none"))
	require.NoError(t, open("diffusion.vae=none", "model="+s.path("model/transformer")))
	require.NoError(t, os.Rename(s.path("model/elsewhere"), s.path("model/vae")))
	require.ErrorContains(t, open("memory_limit=1KiB"), "memory_limit is 1.0 KiB")

	c := s.cache("other")
	for i := range 2 {
		name := s.path(fmt.Sprintf("pictures/%03d", i))
		_, err = c.Text(t.Context(), name+".txt", func(string) (cache.Embedding, error) {
			return cache.Embedding{Embeds: s.random(1, 2, 48), Mask: []int64{1, 1}}, nil
		})
		require.NoError(t, err)
		_, err = c.Image(t.Context(), name+".png", func([]byte) (tensor.Tensor, error) { return s.random(1, 4, 1, 4, 5), nil })
		require.NoError(t, err)
	}
	err = open("diffusion.cache=" + s.path("other"))
	require.ErrorIs(t, err, dit.ErrSample)
	require.ErrorContains(t, err, "000.txt: wrong sample: found 48 features of a token, expected 32 as the transformer has: is the cache that of another model?")
	require.NoError(t, os.RemoveAll(s.path("other/text_embs")))
	require.NoError(t, os.CopyFS(s.path("other/text_embs"), os.DirFS(s.path("cache/text_embs"))))
	require.ErrorContains(t, open("diffusion.cache="+s.path("other")), "000.png: wrong sample: found a latent of 4×5, expected multiples of 2")

	raw, err := os.ReadFile(s.path("model/vae/config.json"))
	require.NoError(t, err)
	s.write("model/vae/config.json", strings.Replace(string(raw), "2.8", "2.9", 1))
	err = open()
	require.ErrorIs(t, err, diffusion.ErrCache)
	require.ErrorContains(t, err, "000.png.safetensors was made with ")

	require.NoError(t, os.RemoveAll(s.path("model/transformer")))
	require.ErrorIs(t, open(), diffusion.ErrPart)
}

// TestDiffusionKilled: a run that is killed while it writes a checkpoint or a picture, or at any
// other moment, goes on to the same bits.
func TestDiffusionKilled(t *testing.T) {
	s := newStudio(t, "qwenimage")
	s.shoot(threeSizes...)
	run := func(name string) (dir, out string) {
		c := s.config(name+"/out", "save_steps=1", "save_limit=2", "steps=9", "sample_every=2", "diffusion.sample_steps=1")
		raw, err := c.YAML()
		require.NoError(t, err)
		s.write(name+"/train.yaml", string(raw))
		return s.path(name), c.OutputDir
	}
	dir, want := run("whole")
	runChild(t, dir)
	dir, got := run("killed")
	for _, at := range []string{"samples/*step-000002.png", "checkpoint-3", ".tmp-*checkpoint-5*", "samples/*step-000006.png", "metrics.jsonl"} {
		killChild(t, dir, filepath.Join(got, at))
		require.NoDirExists(t, filepath.Join(got, train.AdapterDir), "it was killed too late")
	}
	s.write("killed/out/samples/.tmp-0123456789ab-step-000008.png", "the leavings of a write")
	runChild(t, dir)
	require.Equal(t, adapterHash(t, want, train.AdapterDir), adapterHash(t, got, train.AdapterDir))
	for _, name := range []string{"samples", "checkpoint-8", dialects.File} {
		require.Equal(t, bytesUnder(t, filepath.Join(want, name)), bytesUnder(t, filepath.Join(got, name)), name)
	}
}

// bytesUnder are the files of a folder, or a file.
func bytesUnder(t *testing.T, path string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(p)
		name, _ := filepath.Rel(path, p)
		all[name] = string(raw)
		return err
	}))
	return all
}

// TestDiffusionWhole: modules that are trained whole are saved as PEFT does, and not in the
// file of diffusers, which cannot hold them.
func TestDiffusionWhole(t *testing.T) {
	s := newStudio(t, "flux")
	s.shoot([2]int{4, 4}, [2]int{4, 4})
	c := s.config("out", "steps=2", "save_steps=1", "adapter.target_modules=[to_q]", "adapter.modules_to_save=[proj_mlp]")
	sum, err := trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(c.OutputDir, dialects.File))
	a, err := lora.Load(sum.Adapter)
	require.NoError(t, err)
	defer a.Close()
	require.Contains(t, a.Names(), "base_model.model.single_transformer_blocks.0.proj_mlp.weight")
}
