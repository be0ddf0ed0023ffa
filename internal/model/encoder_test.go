package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestEncoders compares the hidden states of encoders with PyTorch's.
func TestEncoders(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	files, err := filepath.Glob("../../testdata/encoders/*/golden.safetensors")
	require.NoError(t, err)
	require.Len(t, files, 22)
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			_, f, ids, s := golden{dir: dir, file: file}.open(t, dev)
			checkHidden(t, s, ids, f)
		})
	}
}

// TestPaddingIsSeen: where padding has a position of its own, a text that has its token
// in it (by its name, which tokenizers know) counts positions without it.
func TestPaddingIsSeen(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for _, name := range []string{"roberta", "xlm-roberta", "mpnet", "camembert"} {
		dir := filepath.Join("../../testdata/encoders", name)
		_, f, _, s := golden{dir: dir, file: filepath.Join(dir, "golden.safetensors")}.open(t, dev)
		hidden, err := s.Hidden(context.Background(), intRows(t, f, "padding.input_ids"))
		require.NoError(t, err)
		requireClose(t, name, hidden[len(hidden)-1], floats(t, f, "padding.hidden"))
	}
}

// TestBert leaves out what PyTorch masks, in both spellings of config.json.
func TestBert(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	const dir = "../../testdata/bert/model"
	for _, c := range []string{dir, respelled(t, dir, filepath.Join(dir, "config.transformers4.json"))} {
		m, f, ids, _ := golden{dir: c, file: "../../testdata/bert/golden.safetensors"}.open(t, dev)
		length, size := len(ids[0]), m.Config.HiddenSize
		all := floats(t, f, "last_hidden_state")
		var want []float32
		for i, row := range intRows(t, f, "attention_mask") {
			n := 0
			for n < length && row[n] == 1 {
				n++
			}
			ids[i] = ids[i][:n]
			want = append(want, all[i*length*size:(i*length+n)*size]...)
		}
		require.Less(t, len(want), len(all), "something is masked")
		s, err := generate.NewScorer(dev, m, nil, 3*length)
		require.NoError(t, err)
		hidden, err := s.Hidden(context.Background(), ids)
		s.Close()
		require.NoError(t, err)
		requireClose(t, "last hidden state", hidden[len(hidden)-1], want)
		requireMeans(t, hidden[len(hidden)-1], ids, floats(t, f, "embedding"))
	}
}

// requireMeans compares the mean of each row, as a vector of length one.
func requireMeans(t *testing.T, hidden []float32, ids [][]int32, want []float32) {
	size, at := len(want)/len(ids), 0
	var got []float32
	for _, row := range ids {
		mean, squares := make([]float64, size), 0.0
		for i := range len(row) * size {
			mean[i%size] += float64(hidden[at+i])
		}
		at += len(row) * size
		for _, x := range mean {
			squares += x * x
		}
		for _, x := range mean {
			got = append(got, float32(x/math.Sqrt(squares)))
		}
	}
	requireClose(t, "embedding", got, want)
}

// A checkpoint names the weights as it likes, and what is built has one set of names.
func TestEncoderNames(t *testing.T) {
	for dir, stored := range map[string]string{
		"bert":      "encoder.layer.1.output.LayerNorm.weight",
		"bert-head": "bert.encoder.layer.1.output.LayerNorm.weight",
		"bert-old":  "encoder.layer.1.output.LayerNorm.gamma",
	} {
		m, err := model.Open(filepath.Join("../../testdata/encoders", dir))
		require.NoError(t, err)
		const name = "encoder.layer.1.output.LayerNorm.weight"
		require.Contains(t, m.Used(), name)
		require.True(t, m.Has(name))
		require.False(t, m.Has(name+"s"))
		require.Equal(t, []string{stored}, m.Stored(name))
		require.NoError(t, m.Close())
	}
}

// TestEncoderErrors: what config.json asks for and is not built is refused by name.
func TestEncoderErrors(t *testing.T) {
	for _, c := range []struct {
		dir, key string
		value    any
		kind     error
		says     string
	}{
		{"bert", "position_embedding_type", "relative_key", model.ErrUnsupported, `position_embedding_type "relative_key"; supported: absolute`},
		{"bert", "is_decoder", true, model.ErrUnsupported, `is_decoder "true"; supported: false`},
		{"roberta", "add_cross_attention", true, model.ErrUnsupported, `add_cross_attention "true"`},
		{"bert", "hidden_act", "mish", model.ErrUnsupported, `hidden_act "mish"`},
		{"bert", "num_attention_heads", 5, model.ErrConfig, "hidden_size 24 is not a multiple of num_attention_heads 5"},
		{"bert", "layer_norm_eps", 0, model.ErrConfig, "layer_norm_eps: found 0, expected more than 0"},
		{"bert", "type_vocab_size", -1, model.ErrConfig, "type_vocab_size: found -1"},
		{"roberta", "pad_token_id", -4, model.ErrConfig, "pad_token_id: found -4, expected a row of the vocabulary"},
		{"roberta", "max_position_embeddings", 2, model.ErrConfig, "max_position_embeddings: found 0, expected 1"},
	} {
		raw, err := os.ReadFile(filepath.Join("../../testdata/encoders", c.dir, "config.json"))
		require.NoError(t, err)
		_, err = model.ParseConfig(changed(t, raw, map[string]any{c.key: c.value}))
		require.ErrorIs(t, err, c.kind)
		require.ErrorContains(t, err, c.says)
	}
}

// changed is a config.json with changes; nil removes a key.
func changed(t *testing.T, raw []byte, changes map[string]any) []byte {
	var c map[string]any
	require.NoError(t, json.Unmarshal(raw, &c))
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	raw, err := json.Marshal(c)
	require.NoError(t, err)
	return raw
}

// A config.json without architectures means the body.
func TestBodyOfModelType(t *testing.T) {
	for _, dir := range []string{"bert", "bert-head", "roberta", "xlm-roberta", "mpnet", "camembert", "distilbert-head", "modernbert-head"} {
		raw, err := os.ReadFile(filepath.Join("../../testdata/encoders", dir, "config.json"))
		require.NoError(t, err)
		c, err := model.ParseConfig(changed(t, raw, map[string]any{"architectures": nil}))
		require.NoError(t, err)
		require.Regexp(t, "Model$", c.Architecture)
	}
}

// The positions of RoBERTa begin behind the padding row, so texts are shorter than
// the table.
func TestLengthBehindPadding(t *testing.T) {
	m, err := model.Open("../../testdata/encoders/roberta")
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, 38, m.Config.MaxLength())
	w, err := m.Weight("embeddings.position_embeddings.weight")
	require.NoError(t, err)
	require.Equal(t, []int{40, 24}, w.Shape)
	require.Equal(t, tensor.F32, w.DType)
}

func ExampleOpen_encoder() {
	m, err := model.Open("../../testdata/encoders/bert")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	fmt.Println(m.Config.Architecture, m.Config.MaxLength(), "tokens")
	// Output: BertModel 48 tokens
}
