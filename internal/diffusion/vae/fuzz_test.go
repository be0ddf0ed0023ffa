package vae

import (
	"os"
	"testing"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// FuzzConfig: a configuration that is accepted has a space, and a scale or an error.
func FuzzConfig(f *testing.F) {
	for dir := range goldens {
		raw, err := os.ReadFile(dir + "/config.json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"_class_name": "AutoencoderKL", "block_out_channels": []}`))
	f.Add([]byte(`{"_class_name": "AutoencoderKLFlux2", "down_block_types": null, "patch_size": [2]}`))
	f.Add([]byte(`{"_class_name": "AutoencoderKLQwenImage", "dim_mult": []}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := model.ParseConfig(raw)
		if err != nil {
			return
		}
		a, err := of(c)
		if err != nil {
			return
		}
		s := a.Space()
		if s.Channels < 1 || s.Pixels < 1 || s.Multiple%s.Pixels != 0 || s.Colours < 1 {
			t.Fatalf("%+v", s)
		}
		scale, err := a.scale(func(string) ([]float32, error) { return nil, nn.ErrMissing })
		if err == nil && (len(scale.Mean) == 0 || len(scale.Mean) != len(scale.Factor)) {
			t.Fatalf("%+v", scale)
		}
	})
}
