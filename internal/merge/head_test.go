package merge

import (
	"context"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// The classifier that comes of an adapter is that which PEFT makes and transformers
// saves: the same tensors and values, and the same words in config.json.
func TestClassifier(t *testing.T) {
	for name, base := range map[string]string{"bert": "bert-old", "xlm-roberta": "xlm-roberta", "mpnet": "mpnet", "llama": "llama", "distilbert": "distilbert", "modernbert": "modernbert", "modernbert-mean": "modernbert-head", "nomic-bert": "nomic-bert", "gte": "gte-head", "deberta-v2": "deberta-v2", "deberta-v2-own": "deberta-v2-head"} {
		base, dir := "../../testdata/encoders/"+base, "../../testdata/tasks/classes-"+name
		config := readObject(t, dir+"/merged/config.json")
		m, err := classify.OpenModel(base, dir+"/final")
		require.NoError(t, err)
		defer m.Close()
		expected, err := model.ReadConfig(dir + "/merged")
		require.NoError(t, err)
		m.Config.Classes = expected.Classes
		a, err := lora.Load(dir + "/final")
		require.NoError(t, err)
		defer a.Close()
		p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.NoError(t, err)
		require.NoError(t, a.Check(p, lora.CheckOptions{}).Err())
		out := filepath.Join(t.TempDir(), "merged")
		_, err = Write(context.Background(), out, m, a, p, Options{DType: tensor.F32})
		require.NoError(t, err)
		want, got := map[string][]float32{}, weightsOf(t, out)
		for key, x := range weightsOf(t, dir+"/merged") { // transformers gives norms back the names that the base has for them
			want[strings.NewReplacer(".gamma", ".weight", ".beta", ".bias").Replace(key)] = x
		}
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), name)
		for key, x := range want {
			largest := 0.0
			for _, v := range x {
				largest = math.Max(largest, math.Abs(float64(v)))
			}
			require.InDeltaSlice(t, x, got[key], 2e-6*largest, key)
		}
		written := readObject(t, out+"/config.json")
		for _, key := range []string{"architectures", "id2label", "label2id", "problem_type"} {
			require.Equal(t, config[key], written[key], "%s: %s", name, key)
		}
		back, err := model.Open(out)
		require.NoError(t, err)
		require.Equal(t, expected.Classes, back.Config.Classes)
		require.NoError(t, back.Close())
	}
}
