package quickstart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/lorafuse/lorafuse/backend/all" // the device whose memory bounds the plan
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/train/config"
)

// TestChoose: choices depend on the number and the columns of the rows, and given keys stay.
func TestChoose(t *testing.T) {
	csv := func(header string, rows int) string {
		file := filepath.Join(t.TempDir(), "rows.csv")
		var b strings.Builder
		b.WriteString(header + "\n")
		for i := range rows {
			fmt.Fprintf(&b, "the quick %d,brown fox %d\n", i, i%2)
		}
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
		return file
	}
	choose := func(file string, sets ...string) (*config.Config, string) {
		c := config.Default()
		for _, s := range append(sets, "model=../../testdata/lm/llama/model", "data.train="+List([]string{file})) {
			require.NoError(t, c.Set(s))
		}
		lines, err := Choose(t.Context(), c, hub.Options{})
		require.NoError(t, err)
		require.NoError(t, c.Validate())
		return c, strings.Join(lines, "\n")
	}
	c, lines := choose(csv("prompt,completion", 30))
	require.Equal(t, config.TaskLanguage, c.Task)
	require.Equal(t, []any{4, 9.0, 16, 32.0, "all-linear", 64, 0.0, false}, []any{c.BatchSize, c.Epochs, c.Adapter.R, c.Adapter.LoraAlpha, c.Adapter.TargetModules.Expr, c.Data.MaxLength, c.Data.EvalFraction, c.Data.Packing})
	require.Contains(t, lines, "task     language: by the columns prompt, completion")

	c, lines = choose(csv("prompt,completion", 3000), "adapter.r=4", "steps=5")
	require.Equal(t, []any{4, 8.0, 3.0, 0.02}, []any{c.Adapter.R, c.Adapter.LoraAlpha, 3 + c.Epochs, c.Data.EvalFraction})
	require.NotContains(t, lines, "adapter.r ")
	require.NotContains(t, lines, "epochs")

	c, _ = choose(csv("text,label", 3))
	require.Equal(t, []any{config.TaskClassification, 3, 20.0}, []any{c.Task, c.BatchSize, c.Epochs})
	c, _ = choose(csv("anchor,positive", 300))
	require.Equal(t, []any{config.TaskEmbedding, 32, 0.05}, []any{c.Task, c.BatchSize, c.Data.EvalFraction})
}

// TestImages: image models and folders of images are refused with the command to use.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.png"), nil, 0o600))
	c := config.Default()
	require.NoError(t, c.Set("model=../../testdata/lm/llama/model"))
	require.NoError(t, c.Set("data.train="+dir))
	_, err := Choose(t.Context(), c, hub.Options{})
	require.ErrorIs(t, err, ErrImages)
	require.ErrorContains(t, err, dir)
}
