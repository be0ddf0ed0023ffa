package sentence_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const root = "../../testdata/encoders"

func TestRead(t *testing.T) {
	prompts := map[string]string{"query": "query: ", "passage": "passage: "}
	none := map[string]string{}
	for name, want := range map[string]sentence.Transform{
		"bert":        {Pooling: []sentence.Mode{sentence.Mean}, Steps: []sentence.Step{{}}, MaxLength: 16, Prompts: none},
		"bert-head":   {Pooling: []sentence.Mode{sentence.First}, MaxLength: 512, Prompts: prompts, DefaultPrompt: "passage"},
		"bert-old":    {Pooling: []sentence.Mode{sentence.Max, sentence.MeanRoot}, MaxLength: 20, LowerCase: true, Prompts: none},
		"roberta":     {Pooling: []sentence.Mode{sentence.WeightedMean}, MaxLength: 38, Prompts: none},
		"xlm-roberta": {Pooling: []sentence.Mode{sentence.Mean}, Steps: []sentence.Step{{}}, MaxLength: 24, Prompts: prompts},
		"llama":       {Pooling: []sentence.Mode{sentence.Last}, Steps: []sentence.Step{{}}, MaxLength: 30, Prompts: none},
	} {
		got, err := sentence.Read(filepath.Join(root, name))
		require.NoError(t, err)
		require.Equal(t, want, *got, name)
	}
	got, err := sentence.Read(filepath.Join(root, "mpnet"))
	require.NoError(t, err)
	require.Len(t, got.Steps, 2)
	d := got.Steps[0].Dense
	require.Equal(t, []any{"2_Dense", 24, 10, "Tanh", 240, 10}, []any{d.Name, d.In, d.Out, d.Activation, len(d.Weight), len(d.Bias)})
	require.Nil(t, got.Steps[1].Dense)
	require.Equal(t, 48, (&sentence.Transform{Pooling: []sentence.Mode{sentence.Max, sentence.Mean}}).Size(24))
	require.Equal(t, 7, (&sentence.Transform{MaxLength: 9}).Longest(7))
	require.Equal(t, 7, (&sentence.Transform{}).Longest(7))
}

// A folder without the files of sentence-transformers means mean pooling, or the last token for causal language models.
func TestPlainFolder(t *testing.T) {
	got, err := sentence.Read(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, []sentence.Mode{sentence.Mean}, got.Pooling)
	require.Zero(t, got.MaxLength)
	for config, want := range map[string]sentence.Mode{
		`{}`: sentence.Mean, `{"architectures": ["BertModel"]}`: sentence.Mean, `{"architectures": ["LlamaForCausalLM"]}`: sentence.Last,
		`{"architectures": ["LlamaForCausalLM"], "is_causal": false}`: sentence.Mean, `{"architectures": ["LlamaModel"]}`: sentence.Mean,
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
		got, err := sentence.Read(dir)
		require.NoError(t, err)
		require.Equal(t, []sentence.Mode{want}, got.Pooling, config)
	}
}

const typeOf = "sentence_transformers.models."

// folder writes files of sentence-transformers, some replaced by the given ones.
func folder(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	all := map[string]string{
		"modules.json":          `[{"type": "` + typeOf + `Transformer", "path": ""}, {"type": "` + typeOf + `Pooling", "path": "1_Pooling"}, {"type": "` + typeOf + `Dense", "path": "2_Dense"}]`,
		"1_Pooling/config.json": `{"pooling_mode_cls_token": true}`,
		"2_Dense/config.json":   `{"in_features": 2, "out_features": 1, "bias": false, "activation_function": "torch.nn.modules.linear.Identity"}`,
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o777))
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
		}
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "2_Dense/model.safetensors"), []safetensors.Entry{
		{Name: "linear.weight", DType: safetensors.F32, Shape: []int{1, 2}, Data: tensor.BytesOf([]float32{3, 4})}}, nil))
	return dir
}

// TestSpellings covers the spellings of newer and older versions.
func TestSpellings(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		check func(*sentence.Transform)
	}{
		{nil, func(s *sentence.Transform) { require.Equal(t, []float32{3, 4}, s.Steps[0].Dense.Weight) }},
		{map[string]string{"1_Pooling/config.json": `{"pooling_mode": "lasttoken", "include_prompt": false}`}, func(s *sentence.Transform) {
			require.Equal(t, []sentence.Mode{sentence.Last}, s.Pooling)
			require.True(t, s.ExcludePrompt)
		}},
		{map[string]string{"1_Pooling/config.json": `{"pooling_mode": ["mean", "cls"]}`}, func(s *sentence.Transform) {
			require.Equal(t, []sentence.Mode{sentence.Mean, sentence.First}, s.Pooling)
		}},
		{map[string]string{"1_Pooling/config.json": `{}`}, func(s *sentence.Transform) { require.Equal(t, []sentence.Mode{sentence.Mean}, s.Pooling) }},
		{map[string]string{"sentence_roberta_config.json": `{"max_seq_length": 7}`}, func(s *sentence.Transform) { require.Equal(t, 7, s.MaxLength) }},
		{map[string]string{"sentence_bert_config.json": `{"max_seq_length": null, "transformer_task": "feature-extraction"}`, "tokenizer_config.json": `{"model_max_length": 1000000000000000019884624838656}`},
			func(s *sentence.Transform) { require.Zero(t, s.MaxLength) }},
		{map[string]string{"config_sentence_transformers.json": `{"prompts": {"query": null, "a": "b"}}`}, func(s *sentence.Transform) {
			require.Equal(t, map[string]string{"a": "b"}, s.Prompts)
		}},
	} {
		s, err := sentence.Read(folder(t, c.files))
		require.NoError(t, err)
		c.check(s)
	}
}

func TestReadErrors(t *testing.T) {
	module := func(i int, kind, path string) map[string]string {
		m := []map[string]string{{"type": typeOf + "Transformer"}, {"type": typeOf + "Pooling", "path": "1_Pooling"}, {"type": typeOf + "Normalize"}}
		m[i] = map[string]string{"type": typeOf + kind, "path": path}
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		return map[string]string{"modules.json": string(raw)}
	}
	file := func(name, text string) map[string]string { return map[string]string{name: text} }
	for _, c := range []struct {
		files map[string]string
		kind  error
		says  string
	}{
		{file("modules.json", "{"), sentence.ErrFile, "modules.json"},
		{file("modules.json", "[]"), sentence.ErrFile, "lists no Pooling"},
		{module(2, "LSTM", ""), sentence.ErrUnsupported, `"sentence_transformers.models.LSTM"; supported: Transformer, Pooling, Dense, Normalize`},
		{module(0, "CLIPModel", ""), sentence.ErrUnsupported, `module 0 is "sentence_transformers.models.CLIPModel"`},
		{module(1, "Normalize", ""), sentence.ErrUnsupported, "module 1"},
		{module(2, "Pooling", "1_Pooling"), sentence.ErrUnsupported, "module 2"},
		{module(0, "Transformer", "0_Transformer"), sentence.ErrUnsupported, `the folder "0_Transformer"`},
		{module(1, "Pooling", "../x"), sentence.ErrFile, `the path "../x", expected a folder beside it`},
		{file("1_Pooling/config.json", ""), sentence.ErrFile, "1_Pooling/config.json is missing"},
		{file("1_Pooling/config.json", `{"pooling_mode": "median"}`), sentence.ErrUnsupported, `pooling_mode "median"; supported: cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken`},
		{file("1_Pooling/config.json", `{"pooling_mode": 3}`), sentence.ErrFile, "pooling_mode: found 3"},
		{file("1_Pooling/config.json", `{"pooling_mode": []}`), sentence.ErrFile, "pooling_mode: found []"},
		{file("2_Dense/config.json", ""), sentence.ErrFile, "2_Dense/config.json is missing"},
		{file("2_Dense/config.json", `{"in_features": 0, "out_features": 1}`), sentence.ErrFile, "in_features 0"},
		{file("2_Dense/config.json", `{"in_features": 2, "out_features": 1, "use_residual": true}`), sentence.ErrUnsupported, "use_residual true"},
		{file("2_Dense/config.json", `{"in_features": 2, "out_features": 1, "module_input_name": "token_embeddings"}`), sentence.ErrUnsupported, `"token_embeddings"`},
		{file("2_Dense/config.json", `{"in_features": 2, "out_features": 1, "activation_function": "torch.nn.Softplus"}`), sentence.ErrUnsupported, `activation_function "torch.nn.Softplus"; supported: GELU, Identity, Sigmoid, Tanh`},
		{file("2_Dense/config.json", `{"in_features": 3, "out_features": 1}`), sentence.ErrFile, `"linear.weight" is [1 2], expected [1 3]`},
		{file("2_Dense/config.json", `{"in_features": 2, "out_features": 1}`), safetensors.ErrNotFound, "linear.bias"},
		{file("sentence_bert_config.json", `{"max_seq_length": 0}`), sentence.ErrFile, "max_seq_length: found 0"},
		{file("sentence_bert_config.json", `{"transformer_task": "fill-mask"}`), sentence.ErrUnsupported, `transformer_task "fill-mask"`},
		{file("config_sentence_transformers.json", `{"default_prompt_name": "a"}`), sentence.ErrFile, `default_prompt_name`},
	} {
		_, err := sentence.Read(folder(t, c.files))
		require.ErrorIs(t, err, c.kind)
		require.ErrorContains(t, err, c.says)
	}
	s := &sentence.Transform{Prompts: map[string]string{}}
	_, err := s.Prompt("query")
	require.ErrorIs(t, err, sentence.ErrPrompt)
	require.ErrorContains(t, err, "the model has none")
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`[{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1"}, {"type": "Normalize"}]`), []byte(`{"pooling_mode": "mean"}`))
	f.Add([]byte(`[{"type": "Pooling", "path": "/"}]`), []byte(`{"pooling_mode": {}}`))
	f.Fuzz(func(t *testing.T, modules, pooling []byte) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "1"), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "modules.json"), modules, 0o666))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "1", "config.json"), pooling, 0o666))
		if s, err := sentence.Read(dir); err == nil {
			require.NotEmpty(t, s.Pooling)
			for _, m := range s.Pooling {
				_, err := sentence.ParseMode(string(m))
				require.NoError(t, err)
			}
		}
	})
}

// TestVectors compares every pooling of random texts with its definition, with and without normalization.
func TestVectors(t *testing.T) {
	const size, longest = 3, 9
	ctx, dev := context.Background(), testdevice.Open(t, backend.Options{})
	for _, mode := range sentence.Modes() {
		for _, steps := range [][]sentence.Step{nil, {{}}} {
			g := graph.New()
			b := nn.NewBuilder(g, nil, nn.Options{OtherBounds: 5 * longest})
			states := b.Input("states", tensor.F32, b.Axis(nn.Tokens), ir.Static(size))
			s := &sentence.Transform{Pooling: []sentence.Mode{mode}, Steps: steps}
			p := g.Program()
			p.Result("vectors", s.Vectors(b, states, longest))
			e, err := p.Compile(dev)
			require.NoError(t, err)
			defer e.Close()
			buffers := bind(t, dev, e)
			rapid.Check(t, func(r *rapid.T) {
				var batch data.Batch
				lengths := rapid.SliceOfN(rapid.IntRange(1, longest), 1, 5).Draw(r, "lengths")
				for _, n := range lengths {
					batch.Add(make([]int32, n), nil)
				}
				sentence.Mark(&batch)
				n := size * len(batch.Tokens())
				states := rapid.SliceOfN(rapid.Float32Range(-4, 4), n, n).Draw(r, "states")
				batch.SetFloats("states", states)
				require.NoError(r, e.SetDim(nn.Tokens, len(batch.Tokens())))
				require.NoError(r, e.SetDim(sentence.Texts, len(lengths)))
				for _, in := range b.Inputs() {
					if array, ok := batch.Array(in.Name); e.Uses(in.Param) {
						require.True(r, ok, in.Name)
						f, err := dev.Upload(buffers[in.Param], 0, array)
						require.NoError(r, err)
						require.NoError(r, f.Wait(ctx))
					}
				}
				require.NoError(r, e.RunWait(ctx))
				got := make([]float32, size*len(lengths))
				f, err := dev.Download(tensor.BytesOf(got), buffers["vectors"], 0)
				require.NoError(r, err)
				require.NoError(r, f.Wait(ctx))
				for i, length := range lengths {
					want := pooled(mode, states[:size*length], size)
					if states = states[size*length:]; steps != nil {
						squares := 0.0
						for _, x := range want {
							squares += x * x
						}
						if squares < 1e-6 {
							continue // what is left of a sum that cancels
						}
						for j := range want {
							want[j] /= math.Sqrt(squares)
						}
					}
					for j, x := range want {
						require.InDelta(r, x, got[i*size+j], 2e-4, "%v of text %d", mode, i)
					}
				}
			})
		}
	}
}

// bind binds buffers to the arguments of a program.
func bind(t *testing.T, dev backend.Device, e *exec.Executable) map[string]backend.Buffer {
	buffers := map[string]backend.Buffer{}
	for _, a := range e.Program().Args {
		b, err := dev.Alloc(a.Type.Bytes(e.Program().MaxDims()))
		require.NoError(t, err)
		t.Cleanup(b.Free)
		require.NoError(t, e.Bind(a.Name, b))
		buffers[a.Name] = b
	}
	return buffers
}

// pooled computes one vector from the states of a text.
func pooled(mode sentence.Mode, states []float32, size int) []float64 {
	out, n := make([]float64, size), len(states)/size
	for j := range out {
		column := make([]float64, n)
		sum, weighted, largest := 0.0, 0.0, math.Inf(-1)
		for i := range column {
			x := float64(states[i*size+j])
			column[i] = x
			sum, weighted, largest = sum+x, weighted+float64(i+1)*x, max(largest, x)
		}
		out[j] = map[sentence.Mode]float64{
			sentence.First: column[0], sentence.Last: column[n-1], sentence.Max: largest, sentence.Mean: sum / float64(n),
			sentence.MeanRoot: sum / math.Sqrt(float64(n)), sentence.WeightedMean: weighted / float64(n*(n+1)/2),
		}[mode]
	}
	return out
}
