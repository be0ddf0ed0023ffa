package model_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/safetensors"
)

// TestBidirectional compares decoders whose config.json makes attention bidirectional with
// transformers: packed rows of two lengths with padded ones.
func TestBidirectional(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	raw, err := os.ReadFile("../../testdata/bidirectional/cases.json")
	require.NoError(t, err)
	var cases map[string]struct {
		Model  string
		Config map[string]any
	}
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.Len(t, cases, 17)
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			m, err := model.Open(reconfigured(t, filepath.Join("../../testdata", cases[name].Model), cases[name].Config))
			require.NoError(t, err)
			defer m.Close()
			f, err := safetensors.Open(filepath.Join("../../testdata/bidirectional", name+".safetensors"))
			require.NoError(t, err)
			defer f.Close()
			ids, mask := intRows(t, f, "input_ids"), intRows(t, f, "attention_mask")
			for i := range ids {
				ids[i] = ids[i][:len(ids[i])-zeros(mask[i])]
			}
			require.Less(t, len(ids[1]), len(ids[0]), "a row is padded")
			if f.Has("scores") {
				c, err := classify.New(t.Context(), dev, m, nil, classify.Options{MaxTokens: 64, MaxDocuments: 2})
				require.NoError(t, err)
				defer c.Close()
				var b data.Batch
				for _, row := range ids {
					b.Add(row, nil)
				}
				b.SetInts(nn.Classes, []int32{0, 1})
				got, _, err := c.Score(t.Context(), &b)
				require.NoError(t, err)
				requireClose(t, "scores", got, floats(t, f, "scores"))
				return
			}
			s, err := generate.NewScorer(dev, m, nil, len(ids[0])+len(ids[1]))
			require.NoError(t, err)
			defer s.Close()
			hidden, err := s.Hidden(t.Context(), ids)
			require.NoError(t, err)
			requireClose(t, "hidden", hidden[len(hidden)-1], unpadded(ids, len(mask[0]), floats(t, f, "hidden")))
			if f.Has("logits") {
				logits, err := s.Logits(t.Context(), ids)
				require.NoError(t, err)
				requireClose(t, "logits", logits, unpadded(ids, len(mask[0]), floats(t, f, "logits")))
			}
			_, err = s.Loss(t.Context(), &data.Batch{})
			require.ErrorIs(t, err, model.ErrTask)
			require.ErrorContains(t, err, "bidirectional")
			_, err = generate.New(t.Context(), dev, m, nil, generate.Options{})
			require.ErrorIs(t, err, model.ErrTask)
			require.ErrorContains(t, err, "does not continue them")
		})
	}
}

// reconfigured is a copy of a model with changes of config.json; nil takes a key out, and
// "None" sets it to null.
func reconfigured(t *testing.T, dir string, changes map[string]any) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, json.Unmarshal(raw, &config))
	for key, value := range changes {
		switch inner, ok := value.(map[string]any); {
		case ok:
			maps.Copy(config[key].(map[string]any), inner)
		case value == nil:
			delete(config, key)
		case value == "None":
			config[key] = nil
		default:
			config[key] = value
		}
	}
	raw, err = json.Marshal(config)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(file, raw, 0o644))
	return respelled(t, dir, file)
}

func zeros(mask []int32) (n int) {
	for _, x := range mask {
		if x == 0 {
			n++
		}
	}
	return n
}

// unpadded leaves the padding out of rows of so many tokens each.
func unpadded(ids [][]int32, length int, all []float32) (x []float32) {
	size := len(all) / (length * len(ids))
	for i, row := range ids {
		x = append(x, all[i*length*size:(i*length+len(row))*size]...)
	}
	return x
}
