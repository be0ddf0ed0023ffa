package generate_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
)

// TestCutShort: a model that is cut short after it was opened is an error of
// what reads it first: the load where its weights are quantised, else the
// prompt.
func TestCutShort(t *testing.T) {
	for _, method := range []quant.Method{quant.Int8, quant.Bit4, quant.None} {
		dir := filepath.Join(t.TempDir(), "model")
		require.NoError(t, os.CopyFS(dir, os.DirFS("../../testdata/lm/llama/model")))
		m, err := model.Open(dir)
		require.NoError(t, err)
		defer m.Close()
		require.NoError(t, m.Quantize(method, nil))
		dev, err := backend.Open(backend.CPU, backend.Options{Threads: 3})
		require.NoError(t, err)
		defer dev.Close()
		path := filepath.Join(dir, "model.safetensors")
		require.NoError(t, os.Truncate(path, 0))
		g, err := generate.New(t.Context(), dev, m, nil, generate.Options{})
		if err == nil {
			require.Equal(t, quant.None, method)
			defer g.Close()
			_, err = g.Generate(t.Context(), []int32{1, 2, 3}, generate.GenerateOptions{MaxNewTokens: 3}, nil)
		}
		require.ErrorIs(t, err, safetensors.ErrFault, method)
		assert.ErrorContains(t, err, path)
	}
}
