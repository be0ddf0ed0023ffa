package cli

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

func TestInspectStats(t *testing.T) {
	l := newLab(t)
	path := l.write("x.safetensors",
		floats("w", []float32{1, -3, 0, float32(math.NaN()), float32(math.Inf(1)), 2}, 2, 3), floats("nan", []float32{float32(math.NaN())}, 1),
		ints("ids", []int64{-5, 1 << 62}, 2), floats("empty", nil, 0))
	i := decode[inspection](t, succeed(t, "inspect", path, "--stats", "--json"))
	found := map[string]*statistics{}
	for _, x := range i.Tensors {
		found[x.Name] = x.Stats
		assert.Empty(t, x.CRC32C)
	}
	assert.Nil(t, i.Verify)
	assert.Equal(t, []json.Number{"-3", "2"}, []json.Number{found["w"].Min, found["w"].Max})
	assert.Equal(t, []int64{1, 1, 1}, []int64{found["w"].Zero, found["w"].NaN, found["w"].Inf})
	assert.InDelta(t, 1./6, found["w"].NaNShare, 1e-15)
	assert.Zero(t, *found["w"].Mean)
	assert.InDelta(t, math.Sqrt(3.5), *found["w"].Std, 1e-15)
	assert.Len(t, found["w"].Histogram.Edges, len(found["w"].Histogram.Counts)+1)
	assert.Equal(t, []json.Number{"-5", "4611686018427387904"}, []json.Number{found["ids"].Min, found["ids"].Max})
	for _, name := range []string{"nan", "empty"} {
		assert.Nil(t, found[name].Mean, name)
		assert.Nil(t, found[name].Histogram, name)
	}
	text := succeed(t, "inspect", path, "--stats")
	assert.Regexp(t, `TENSOR +DTYPE +SHAPE +SIZE +MIN +MAX +MEAN +STD +ZERO +NAN +INF +HISTOGRAM\n`, text)
	assert.Regexp(t, `  w +F32 +\[2 3\] +0\.0 KiB +-3 +2 +0 +1\.871 +16\.7% +16\.7% +16\.7% +█ .*█`, text)
	assert.Regexp(t, `  nan +F32 +\[1\] +0\.0 KiB +- +- +- +- +0 +100\.0% +0 +-\n`, text)
}

func TestSparkline(t *testing.T) {
	assert.Equal(t, "▁ ▄█", (&histogram{Counts: []int64{1, 0, 500, 1000}}).sparkline())
	assert.Equal(t, "█", (&histogram{Counts: []int64{3}}).sparkline())
	assert.Equal(t, []string{"0", "3 of them", "0.1%", "100.0%"}, []string{percent(0, 0), percent(3, 1e-6), percent(7, 0.0009), percent(5, 1)})
}

func TestInspectTensor(t *testing.T) {
	i := decode[inspection](t, succeed(t, "inspect", llama, "--stats", "--tensor", "*layers.?.*norm*", "--json"))
	assert.Len(t, i.Tensors, 4)
	assert.EqualValues(t, 4*64, i.Elements)
	assert.EqualValues(t, 4*64*4, i.Bytes)
	for _, x := range i.Tensors {
		assert.NotNil(t, x.Stats)
	}
	i = decode[inspection](t, succeed(t, "inspect", llama, "--tensor", "lm_head.weight", "--json", "--verify"))
	assert.Len(t, i.Tensors, 1)
	assert.Nil(t, i.Tensors[0].Stats)
	assert.Len(t, i.Tensors[0].CRC32C, 8)
}

// An adapter of experts is accounted for, also under the names of transformers 4.
func TestInspectExperts(t *testing.T) {
	for _, name := range []string{"mixtral-experts", "mixtral-former"} {
		i := decode[inspection](t, succeed(t, "inspect", goldens+"/peft/"+name+"/adapter", "--model", goldens+"/extra/mixtral", "--json"))
		require.Empty(t, i.Adapter.Problems)
		found := map[string]bool{}
		for _, target := range i.Adapter.Targets {
			require.Empty(t, target.Missing, target.Name)
			found[target.Name] = true
		}
		require.True(t, found["model.layers.1.mlp.experts.gate_up_proj"])
		require.Equal(t, name == "mixtral-former", found["model.layers.1.mlp.gate.weight"])
	}
	text := succeed(t, "inspect", goldens+"/peft/mixtral-experts/adapter")
	require.Contains(t, text, "mlp.experts.down_proj, mlp.experts.gate_up_proj")
}

func TestInspectVerify(t *testing.T) {
	i := decode[inspection](t, succeed(t, "inspect", goldens+"/lm/qwen2/model-sharded", "--verify", "--stats", "--json"))
	assert.Len(t, i.Verify.Files, 6, "five shards and the index")
	assert.Empty(t, i.Verify.Problems)
	assert.NotNil(t, i.Tensors[0].Stats)
	assert.Contains(t, succeed(t, "inspect", llama, "--verify"), "verified    every byte was read, no problems\n")

	l := newLab(t)
	path := l.write("x.safetensors", safetensors.Entry{Name: "mask", DType: safetensors.Bool, Shape: []int{2}, Data: []byte{1, 7}}, floats("w", []float32{0, 0}, 2))
	r := command(t, "", "inspect", path, "--verify")
	assert.Equal(t, ExitDifferent, r.status)
	assert.Equal(t, "lorafuse: inspect: "+path+": tensor \"mask\": 1 values of BOOL are neither 0 nor 1\n", r.stderr)
	assert.Contains(t, r.stdout, `problem  tensor "mask": 1 values of BOOL`)
	assert.Contains(t, r.stdout, `warning  tensor "w": all 2 values are 0`)
	assert.NotContains(t, r.stdout, "no problems")
}

// TestInspectVerifyFinds runs over models of which something is wrong.
func TestInspectVerifyFinds(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(l *lab, model string)
		says string
	}{
		"name in vain": {func(l *lab, m string) {
			l.setIndex(m, func(index map[string]any, shards map[string]any) {
				shards["model.absent"] = "model-00001-of-00005.safetensors"
			})
		}, `tensor "model.absent" is listed`},
		"not listed": {func(l *lab, m string) {
			l.setIndex(m, func(index map[string]any, shards map[string]any) { delete(shards, "model.norm.weight") })
		}, `tensor "model.norm.weight" of model-00005-of-00005.safetensors is not in`},
		"another shard": {func(l *lab, m string) {
			l.setIndex(m, func(index map[string]any, shards map[string]any) {
				shards["model.norm.weight"] = "model-00001-of-00005.safetensors"
			})
		}, `tensor "model.norm.weight" lies in model-00005-of-00005.safetensors`},
		"total size": {func(l *lab, m string) {
			l.setIndex(m, func(index map[string]any, shards map[string]any) { index["metadata"] = map[string]any{"total_size": 5} })
		}, "total_size is 5"},
		"digest": {func(l *lab, m string) {
			l.file("model/model-00003-of-00005.safetensors.sha256", strings.Repeat("0", 64))
		}, "has the SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			m := l.copy(goldens+"/lm/qwen2/model-sharded", "model")
			c.do(l, m)
			succeed(t, "inspect", m)
			r := command(t, "", "inspect", m, "--verify")
			assert.Equal(t, ExitDifferent, r.status)
			assert.Contains(t, r.stderr, c.says)
		})
	}
}

// setIndex changes the index of a sharded model.
func (l *lab) setIndex(model string, change func(index, shards map[string]any)) {
	path := model + "/" + safetensors.ModelIndex
	index := readJSON[map[string]any](l.t, path)
	shards, ok := index["weight_map"].(map[string]any)
	require.True(l.t, ok)
	change(index, shards)
	raw, err := json.Marshal(index)
	require.NoError(l.t, err)
	require.NoError(l.t, os.WriteFile(path, raw, 0o666))
}

// TestInspectURL fetches headers, and values where they are asked for.
func TestInspectURL(t *testing.T) {
	var fetched atomic.Int64
	files := http.FileServer(http.Dir(goldens + "/lm/llama/model"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &counting{ResponseWriter: w}
		files.ServeHTTP(c, r)
		fetched.Add(c.bytes)
	}))
	defer server.Close()
	url := server.URL + "/model.safetensors"
	i := decode[inspection](t, succeed(t, "inspect", url, "--json"))
	assert.Equal(t, "file", i.Kind)
	assert.Len(t, i.Tensors, 21)
	assert.Less(t, fetched.Load(), i.Bytes/2)
	i = decode[inspection](t, succeed(t, "inspect", url, "--json", "--stats", "--tensor", "model.norm.weight"))
	local := decode[inspection](t, succeed(t, "inspect", llama, "--json", "--stats", "--tensor", "model.norm.weight"))
	assert.Equal(t, local.Tensors, i.Tensors)
	assert.True(t, differing(t, ExitOK, llama, url).Equal)
	l := newLab(t)
	succeed(t, "convert", url, l.path("x.safetensors"))
	assert.Equal(t, readText(t, llama+"/model.safetensors"), readText(t, l.path("x.safetensors")))

	r := command(t, "", "inspect", server.URL+"/none.safetensors")
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, "404")
	assert.Equal(t, ExitUsage, command(t, "", "inspect", url, "--verify").status)
	server.Close()
	r = command(t, "", "inspect", url)
	assert.Equal(t, ExitFailure, r.status, r.stderr)
}

// counting counts what a server sends.
type counting struct {
	http.ResponseWriter
	bytes int64
}

func (c *counting) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return c.ResponseWriter.Write(p)
}
