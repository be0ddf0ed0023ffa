package dit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Adapters that diffusers has saved have the strength that they have there, which is
// twice their rank's: scripts/check_diffusers_adapter.py --write.
func TestAdaptersOfDiffusers(t *testing.T) {
	for _, name := range []string{"flux-0", "flux-1", "qwenimage-2"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(testdata, "adapters", name)
			f, err := safetensors.Open(filepath.Join(dir, "output.safetensors"))
			require.NoError(t, err)
			t.Cleanup(func() { f.Close() })
			want, _ := floats(t, f, "output")

			model, _, _ := strings.Cut(name, "-")
			m, _ := open(t, model)
			s, err := dialects.LoadState(dir, m, lora.ModelOf(m.Config.ModelType, m.Modules()), lora.CheckOptions{})
			require.NoError(t, err)
			for _, x := range s.Placement.Targets {
				assert.Equal(t, 2.0, x.Scale, x.Name)
			}
			requireNear(t, want, run(t, m, s, readGolden(t, model).samples), 1e-4, 1e-5)
		})
	}
}
