package train_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testhub"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/train/config"
)

// TestDiffusionOnTheHub: a pipeline by its name is trained as the folder is, and of it comes
// what a run reads: from caches, the transformer alone.
func TestDiffusionOnTheHub(t *testing.T) {
	s := newStudio(t, "flux")
	s.shoot(threeSizes...)
	h := testhub.Serve(t, map[string]*testhub.Repo{"acme/flux": testhub.Upload(t, s.path("model"))})
	here := s.config("here")
	_, err := trainUntil(t, context.Background(), here)
	require.NoError(t, err)
	losses := figures(t, here, events.Loss)
	learned := func(c *config.Config) string {
		raw, err := os.ReadFile(filepath.Join(c.OutputDir, train.AdapterDir, "adapter_model.safetensors"))
		require.NoError(t, err)
		return testhub.SHA256(string(raw))
	}
	sets := []string{"model=acme/flux"}
	onHub := func(out string, more ...string) {
		c := s.config(out, append(sets, more...)...)
		_, err := trainUntil(t, context.Background(), c)
		require.NoError(t, err)
		require.Equal(t, losses, figures(t, c, events.Loss))
		require.Equal(t, learned(here), learned(c))
	}
	small := []string{"model_index.json", "scheduler/scheduler_config.json", "transformer/config.json", "transformer/diffusion_pytorch_model.safetensors", "vae/config.json"}
	onHub("hub")
	require.Equal(t, small, h.Files())
	onHub("again")
	require.Empty(t, h.Files())
	onHub("other", "diffusion.vae=acme/flux@main/vae")
	require.Empty(t, h.Files())
	onHub("file", "diffusion.transformer=acme/flux/transformer/diffusion_pytorch_model.safetensors")
	require.Empty(t, h.Files())

	// Samples take the autoencoder, before the first step.
	c := s.config("samples", append(sets, "sample_every=3", "diffusion.sample_steps=1")...)
	r, err := train.New(t.Context(), c, train.Observer{})
	require.NoError(t, err)
	r.Close()
	require.Equal(t, []string{"vae/diffusion_pytorch_model.safetensors"}, h.Files())

	// Then it is known whose cache it is: that of the folder.
	t.Setenv("HF_HUB_OFFLINE", "1")
	before := h.Total()
	onHub("offline")
	require.Equal(t, before, h.Total())
	t.Setenv("HF_HOME", t.TempDir())
	_, err = train.New(t.Context(), s.config("none", sets...), train.Observer{})
	require.ErrorIs(t, err, hub.ErrOffline)

	// What is wrong with the cache is found before a transformer is downloaded.
	t.Setenv("HF_HUB_OFFLINE", "")
	require.NoError(t, os.RemoveAll(s.path("cache/img_embs")))
	_, err = train.New(t.Context(), s.config("early", sets...), train.Observer{})
	require.ErrorContains(t, err, "lorafuse data cache builds it")
	require.Equal(t, []string{"model_index.json", "scheduler/scheduler_config.json", "transformer/config.json", "vae/config.json"}, h.Files())
}
