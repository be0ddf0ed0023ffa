package dit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// FuzzConfigs changes one key of a configuration: it is refused, or a graph is built of it
// or refused, and never is there a panic.
func FuzzConfigs(f *testing.F) {
	names := []string{"flux", "qwenimage", "zimage", "flux2", "qwenimage21", "kandinsky5"}
	for i, name := range names {
		raw, err := os.ReadFile(filepath.Join(testdata, name, "transformer", "config.json"))
		require.NoError(f, err)
		keys := map[string]json.RawMessage{}
		require.NoError(f, json.Unmarshal(raw, &keys))
		for key, value := range keys {
			f.Add(uint8(i), key, string(value))
			f.Add(uint8(i), key, "0")
			f.Add(uint8(i), key, "[4, 0, 12]")
			f.Add(uint8(i), key, "1000000000")
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, key, value string) {
		raw, err := os.ReadFile(filepath.Join(testdata, names[int(which)%len(names)], "transformer", "config.json"))
		require.NoError(t, err)
		keys := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal(raw, &keys))
		if !json.Valid([]byte(value)) || (strings.Contains(key, "layers") || strings.Contains(key, "blocks")) && len(value) > 1 {
			return // many layers only take long
		}
		keys[key] = json.RawMessage(value)
		raw, err = json.Marshal(keys)
		require.NoError(t, err)
		c, err := model.ParseConfig(raw)
		if err != nil {
			return
		}
		d, ok := c.Family.(dit.Transformer)
		if !ok {
			return
		}
		b := nn.NewBuilder(graph.New(), dit.Nothing{}, nn.Options{OtherBounds: 2})
		c.Family.Build(c, b)
		s := d.Space()
		d.Bounds(1, dit.Sample{Latent: dit.Latent{Channels: s.Channels, Frames: 1, Height: s.Multiple, Width: s.Multiple}, Prompt: dit.Prompt{Mask: []bool{true}}})
	})
}
