package train_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// A run on the transformer in a single file is that on its folder, bit for bit, be the file
// all that there is or stand in the place of the folder.
func TestDiffusionFromAFile(t *testing.T) {
	s := newStudio(t, "flux")
	s.shoot(threeSizes[:3]...)
	run := func(out string, sets ...string) (numbers, all string) {
		c := s.config(out, append([]string{"steps=4", "save_steps=2"}, sets...)...)
		r, err := train.New(t.Context(), c, train.Observer{})
		require.NoError(t, err)
		defer r.Close()
		sum, err := r.Train(t.Context())
		require.NoError(t, err)
		set, err := weights.Open(filepath.Join(c.OutputDir, dialects.File))
		require.NoError(t, err)
		defer set.Close()
		views, err := set.Views()
		require.NoError(t, err)
		numbers = fmt.Sprint(figures(t, c, events.Loss))
		for _, v := range views {
			numbers += fmt.Sprintf("\n%s %x", v.Name, v.Bytes())
		}
		return numbers, rest(t, c, sum)
	}
	numbers, all := run("folder")

	m, err := model.Open(s.path("model/transformer"))
	require.NoError(t, err)
	views, err := m.Set().Views()
	require.NoError(t, err)
	var entries []safetensors.Entry
	for _, v := range views {
		e := v.Entry()
		e.Name = "model.diffusion_model." + e.Name
		entries = append(entries, e)
	}
	require.NoError(t, safetensors.WriteFile(s.path("file.safetensors"), entries, nil))
	require.NoError(t, m.Close())
	config := s.path("own.json")
	require.NoError(t, os.Rename(s.path("model/transformer/config.json"), config))
	require.NoError(t, os.RemoveAll(s.path("model/transformer")))

	file, its := s.path("file.safetensors"), "diffusion.transformer_config="+config
	_, part := run("part", "diffusion.transformer="+file, its)
	require.True(t, all == part)
	alone, _ := run("alone", "model="+file, its, "diffusion.vae="+s.path("model/vae")) // its adapter is for another model
	require.True(t, numbers == alone)

	for says, sets := range map[string][]string{
		"axes_dims_rope cannot be told for heads of 16 from shapes": {"model=" + file, "diffusion.vae=none"},
		"found no transformer in a single file":                     {its},
		"is a file and so is the transformer":                       {"model=" + file, "diffusion.transformer=" + file, its},
		"has no vae":                                                {"model=" + file, its},
	} {
		_, err := train.New(t.Context(), s.config("bad", sets...), train.Observer{})
		require.ErrorContains(t, err, says)
	}
}
