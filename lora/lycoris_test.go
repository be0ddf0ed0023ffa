package lora_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// Merged weights are those of PEFT's merge_and_unload.
func TestLyCORISMergesAsPEFT(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	for _, name := range []string{"loha", "lokr"} {
		a := load(t, filepath.Join("../testdata/peft", name, "adapter"))
		p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.NoError(t, err)
		f := openFile(t, filepath.Join("../testdata/peft", name, "merged.safetensors"))
		got := weightsOf(t, merged(t, m, a, p))
		require.Equal(t, 3, f.Len())
		for _, key := range f.Names() {
			require.LessOrEqual(t, relative(floats(t, f, key), got[key]), 1e-6, "%s of %s", key, name)
		}
	}
}

// The factors of sizes are those of PEFT's factorization.
func TestFactorize(t *testing.T) {
	for _, x := range [][4]int{
		{256, -1, 16, 16}, {128, -1, 8, 16}, {127, -1, 1, 127}, {128, 4, 4, 32}, {3072, 8, 8, 384}, {32, 6, 4, 8}, {96, 6, 6, 16}, {48, 5, 4, 12}, {8, 16, 2, 4}, {9, 16, 3, 3}, {7, 16, 1, 7}, {12, 12, 12, 1}, {1, -1, 1, 1},
	} {
		a, b := lora.Factorize(x[0], x[1])
		require.Equal(t, [2]int{x[2], x[3]}, [2]int{a, b}, "%d with factor %d", x[0], x[1])
	}
}

// The initial values are uniform as PEFT's, with zeros where the adapter begins without effect.
func TestLyCORISInitialValues(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	for config, zero := range map[string][]string{
		`{"peft_type":"LOHA","r":4,"target_modules":["q_proj"]}`:                                            {"hada_w2_b"},
		`{"peft_type":"LOHA","r":4,"target_modules":["q_proj"],"init_weights":false}`:                       nil,
		`{"peft_type":"LOKR","r":1,"target_modules":["q_proj"]}`:                                            {"lokr_w1"},
		`{"peft_type":"LOKR","r":1,"target_modules":["q_proj"],"decompose_both":true}`:                      {"lokr_w1_a"},
		`{"peft_type":"LOKR","r":1,"target_modules":["q_proj"],"init_weights":"lycoris"}`:                   {"lokr_w2_b"},
		`{"peft_type":"LOKR","r":64,"target_modules":["q_proj"],"init_weights":"lycoris"}`:                  {"lokr_w2"},
		`{"peft_type":"LOKR","r":1,"target_modules":["q_proj"],"init_weights":false,"decompose_both":true}`: nil,
	} {
		c, err := lora.ParseConfig([]byte(config))
		require.NoError(t, err)
		require.Empty(t, c.Warnings)
		p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.NoError(t, err)
		s, err := p.InitialState(m, 3)
		require.NoError(t, err)
		for _, x := range p.Tensors() {
			limit, largest := 1/math.Sqrt(float64(x.Shape[1])), 0.0
			for _, v := range s.Values[x.Key] {
				largest = max(largest, math.Abs(float64(v)))
			}
			isZero := false
			for _, z := range zero {
				isZero = isZero || strings.HasSuffix(x.Key, "."+z)
			}
			if isZero {
				require.Zero(t, largest, x.Key)
				continue
			}
			require.LessOrEqual(t, largest, limit, x.Key)
			require.Greater(t, largest, limit/4, x.Key)
		}
	}
}

// Settings that are not computed are rejected by name.
func TestLyCORISRefusals(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	for config, says := range map[string]string{
		`{"peft_type":"LOHA","target_modules":["embed_tokens"]}`:                    "linear layers can be targeted",
		`{"peft_type":"LOHA","target_modules":["q_proj"],"init_weights":"lycoris"}`: "init_weights",
		`{"peft_type":"LOKR","target_modules":["q_proj"],"init_weights":"pissa"}`:   "init_weights",
		`{"peft_type":"LOKR","target_modules":["q_proj"],"decompose_factor":0}`:     "decompose_factor: found 0",
		`{"peft_type":"LOKR","target_modules":["q_proj"],"rank_dropout":2}`:         "rank_dropout",
		`{"peft_type":"OFT","target_modules":["q_proj"]}`:                           `found "OFT", expected one of LOHA, LOKR, LORA`,
	} {
		c, err := lora.ParseConfig([]byte(config))
		require.NoError(t, err)
		_, err = lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.ErrorContains(t, err, says)
	}
	// Dropouts have no effect except in training.
	s := moved(t, m, `{"peft_type":"LOKR","r":1,"target_modules":["q_proj"],"module_dropout":0.5}`, 1)
	e, err := train.NewEngine(t.Context(), testdevice.Open(t, backend.Options{}), m, s, train.EngineOptions{MaxTokens: 4, Adam: trainer.Adam{Eps: 1e-8}})
	if err == nil {
		var b data.Batch
		b.Add([]int32{1, 2, 3, 4}, []int32{2, 3, 4, 5})
		err = e.Accumulate(t.Context(), &b, 0)
		e.Close()
	}
	require.ErrorIs(t, err, lora.ErrUnsupported)
	require.ErrorContains(t, err, "module_dropout")
}
