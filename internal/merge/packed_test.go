package merge

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// TestMergePacked: models of GPTQ and AWQ are merged as the numbers that their weights stand for,
// into bf16 or the wanted type.
func TestMergePacked(t *testing.T) {
	for _, name := range []string{"gptq-4", "awq"} {
		from := filepath.Join("../../testdata/quant", name)
		adapter := filepath.Join(from, "train/final")
		plain := widened(t, from)
		for _, d := range []tensor.DType{tensor.F32, tensor.Invalid} {
			as := d
			if d == tensor.Invalid {
				as = tensor.BF16
			}
			want, _ := open(t, plain, adapter).merged(t, Options{DType: as})
			base := copyFolder(t, from)
			writeFile(t, filepath.Join(base, "quantize_config.json"), "{}")
			dir, r := open(t, base, adapter).merged(t, Options{DType: d})
			require.Equal(t, 14, r.Merged)
			require.Equal(t, weightsOf(t, want), weightsOf(t, dir))
			config := readObject(t, filepath.Join(dir, "config.json"))
			require.NotContains(t, config, "quantization_config")
			require.NoFileExists(t, filepath.Join(dir, "quantize_config.json"))
			of := readObject(t, filepath.Join(from, "config.json"))
			maps.DeleteFunc(of, func(key string, _ any) bool {
				return key == "quantization_config" || key == "dtype" || key == "torch_dtype"
			})
			for key, value := range of {
				require.Equal(t, value, config[key], key)
			}
		}
	}
}
