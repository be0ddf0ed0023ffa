package train_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/task/flowmatching"
)

// halves are what a sample shows: without the adapter, and with it.
func halves(t *testing.T, path string) (before, after []byte) {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	m, err := png.Decode(bytes.NewReader(raw))
	require.NoError(t, err)
	size := m.Bounds().Size()
	half := func(left int) (pixels []byte) {
		for y := range size.Y {
			for x := range (size.X - 4) / 2 {
				r, g, b, _ := m.At(left+x, y).RGBA()
				pixels = append(pixels, byte(r>>8), byte(g>>8), byte(b>>8))
			}
		}
		return pixels
	}
	return half(0), half((size.X + 4) / 2)
}

// TestSamples: pictures are drawn while an adapter learns, beside those without it, and
// what is learned stays what it is.
func TestSamples(t *testing.T) {
	for _, name := range []string{"flux", "qwenimage"} {
		t.Run(name, func(t *testing.T) {
			s := newStudio(t, name)
			s.shoot(threeSizes...)
			plain := s.config("plain")
			sum, err := trainUntil(t, context.Background(), plain)
			require.NoError(t, err)
			want := rest(t, plain, sum)

			drawn := s.config("drawn", "sample_every=2", "diffusion.sample_steps=3", "log.tensorboard=true")
			sum, err = trainUntil(t, context.Background(), drawn)
			require.NoError(t, err)
			require.Equal(t, want, rest(t, drawn, sum))
			var before, after [][]byte
			for _, step := range []int{2, 4, 6} {
				b, a := halves(t, s.path(fmt.Sprintf("drawn/samples/step-%06d.png", step)))
				before, after = append(before, b), append(after, a)
			}
			require.Equal(t, before[0], before[1])
			require.Equal(t, before[0], before[2])
			require.NotEqual(t, after[0], after[1])
			require.NotEqual(t, before[2], after[2])

			files, err := filepath.Glob(s.path("drawn/tensorboard/*"))
			require.NoError(t, err)
			raw, err := os.ReadFile(files[0])
			require.NoError(t, err)
			require.Equal(t, 3, bytes.Count(raw, []byte("\x89PNG")))
		})
	}
}

// A run that is interrupted draws what an unbroken one does.
func TestSamplesResumed(t *testing.T) {
	s := newStudio(t, "flux")
	s.shoot(threeSizes...)
	sets := []string{"sample_every=3", "diffusion.sample_steps=2"}
	_, err := trainUntil(t, context.Background(), s.config("whole", sets...))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	c := s.config("stopped", sets...)
	r, err := train.New(t.Context(), c, train.Observer{Step: func(r train.Report) {
		if r.Step == 3 {
			cancel() // before its sample
		}
	}})
	require.NoError(t, err)
	_, err = r.Train(ctx)
	require.ErrorIs(t, err, train.ErrInterrupted)
	r.Close()
	c.Resume = "latest"
	_, err = trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	for _, name := range []string{"step-000003.png", "step-000006.png"} {
		want, err := os.ReadFile(s.path("whole/samples/" + name))
		require.NoError(t, err)
		got, err := os.ReadFile(s.path("stopped/samples/" + name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestSamplesAsAsked(t *testing.T) {
	s := newStudio(t, "flux")
	s.shoot([2]int{4, 4}, [2]int{4, 4})
	embedded := s.path("cache/text_embs/001.txt.safetensors")
	c := s.config("out", "steps=2", "sample_every=2", "diffusion.sample_steps=1", "diffusion.sample_width=32", "diffusion.sample_height=16",
		"diffusion.sample_guidance=2", fmt.Sprintf("diffusion.sample_prompts=[%s, %s]", embedded, embedded))
	_, err := trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	f, err := os.Open(s.path("out/samples/step-000002.png"))
	require.NoError(t, err)
	defer f.Close()
	m, err := png.Decode(f)
	require.NoError(t, err)
	require.Equal(t, image.Rect(0, 0, 2*32+4, 2*16+4), m.Bounds())

	_, err = trainUntil(t, context.Background(), s.config("none", "steps=2", "sample_every=1", "diffusion.draw_samples=false"))
	require.NoError(t, err)
	require.NoDirExists(t, s.path("none/"+flowmatching.SamplesDir))

	for says, set := range map[string]string{
		"sample_prompts: diffusion: ":                              "diffusion.sample_prompts=a picture",
		"sample_width and sample_height: diffusion: wrong drawing": "diffusion.sample_width=33",
	} {
		_, err := train.New(t.Context(), s.config("wrong", "sample_every=1", set), train.Observer{})
		require.ErrorContains(t, err, says)
	}
	_, err = train.New(t.Context(), s.config("wrong", "sample_every=1", "diffusion.sample_prompts=missing.safetensors"), train.Observer{})
	require.ErrorIs(t, err, os.ErrNotExist)

	s = newStudio(t, "qwenimage")
	s.shoot([2]int{4, 4}, [2]int{4, 4})
	guided := func() error {
		r, err := train.New(t.Context(), s.config("guided", "sample_every=1", "diffusion.sample_guidance=2"), train.Observer{})
		if err == nil {
			r.Close()
		}
		return err
	}
	require.NoError(t, guided())
	index, err := os.ReadFile(s.path("model/model_index.json"))
	require.NoError(t, err)
	s.write("model/model_index.json", strings.Replace(string(index), "{", `{"is_distilled": true, `, 1))
	require.ErrorContains(t, guided(), "diffusion.sample_guidance: found 2, expected none")
}

// TestSamplesPlanned: the plan of the memory has what samples take, and a budget that has no
// room for them is refused.
func TestSamplesPlanned(t *testing.T) {
	train.FixProcessMemory(t, 64<<20)
	s := newStudio(t, "flux")
	s.shoot([2]int{32, 32}, [2]int{32, 32})
	plan := func(sets ...string) (train.Memory, error) {
		m, _, err := train.DryRun(t.Context(), s.config("out", sets...), train.Observer{})
		return m, err
	}
	without, err := plan()
	require.NoError(t, err)
	require.Zero(t, without.Samples)
	with, err := plan("sample_every=2")
	require.NoError(t, err)
	require.Greater(t, with.Samples, with.Saving)
	require.Equal(t, without.Total()+with.Samples-without.Saving, with.Total())
	require.Contains(t, with.String(), ", samples ")
	larger, err := plan("sample_every=2", "diffusion.sample_width=512", "diffusion.sample_height=512")
	require.NoError(t, err)
	require.Greater(t, larger.Samples, 8*with.Samples, "64 times as many pixels")

	room := fmt.Sprintf("memory=%d", without.Resident()+larger.Samples/2)
	_, err = plan(room)
	require.NoError(t, err)
	_, err = plan(room, "sample_every=2", "diffusion.sample_width=512", "diffusion.sample_height=512")
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, ", samples ")
}
