package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const encoders = goldens + "/encoders"

// vectorsOf are the rows of a tensor of a file.
func vectorsOf(t *testing.T, file, name string) (rows [][]float32) {
	f, err := safetensors.Open(file)
	require.NoError(t, err)
	defer f.Close()
	v, err := f.Lookup(name)
	require.NoError(t, err)
	require.Equal(t, safetensors.F32, v.DType)
	x, err := tensor.View[float32](tensor.Tensor{DType: tensor.F32, Shape: v.Shape, Data: v.Bytes()})
	require.NoError(t, err)
	for i := range v.Shape[0] {
		rows = append(rows, append([]float32(nil), x[i*v.Shape[1]:(i+1)*v.Shape[1]]...))
	}
	return rows
}

func requireVectors(t *testing.T, want, got [][]float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDeltaSlice(t, want[i], got[i], 1e-5, "vector %d", i)
	}
}

// embedTexts are the texts of the goldens.
func embedTexts(t *testing.T) (texts []string) {
	raw, err := os.ReadFile(encoders + "/texts.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &texts))
	return texts
}

// TestEmbed gives vectors of sentence-transformers, in every form of input and output.
func TestEmbed(t *testing.T) {
	l, texts := newLab(t), embedTexts(t)
	bert, golden := encoders+"/bert", encoders+"/bert/golden.safetensors"
	want := vectorsOf(t, golden, "embedding")
	parse := func(lines string) (rows [][]float32) {
		for line := range strings.Lines(lines) {
			var row []float32
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			rows = append(rows, row)
		}
		return rows
	}
	plain := strings.Join(texts, "\n")
	r := command(t, plain, "embed", "--model", bert)
	require.Equal(t, ExitOK, r.status, r.stderr)
	requireVectors(t, want, parse(r.stdout))
	require.Contains(t, r.stderr, "5 of 11 texts were longer than 16 tokens, and cut")
	require.Contains(t, r.stderr, "done     11 texts in ")

	tuned := l.path("tuned.safetensors")
	succeed(t, "embed", "-m", bert, "-a", bert+"/adapter", "-i", l.file("texts.txt", plain+"\n"), "-o", tuned)
	requireVectors(t, vectorsOf(t, golden, "embedding.adapter"), vectorsOf(t, tuned, "embeddings"))

	var objects strings.Builder
	for i, text := range texts {
		line, err := json.Marshal(map[string]any{"id": i, "text": text})
		require.NoError(t, err)
		objects.WriteString("  " + string(line) + " \r\n\n")
	}
	out := l.path("out.jsonl")
	require.Empty(t, succeed(t, "embed", "-m", encoders+"/xlm-roberta", "-i", l.file("texts.jsonl", objects.String()), "-o", out, "--prompt-name", "query"))
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	var rows [][]float32
	for line := range strings.Lines(string(raw)) {
		var object struct {
			ID        int
			Text      string
			Embedding []float32
		}
		require.NoError(t, json.Unmarshal([]byte(line), &object))
		require.Equal(t, len(rows), object.ID)
		require.Equal(t, texts[object.ID], object.Text)
		rows = append(rows, object.Embedding)
	}
	requireVectors(t, vectorsOf(t, encoders+"/xlm-roberta/golden.safetensors", "embedding.query"), rows)
}

// An adapter that is merged into an encoder gives the vectors that it gives beside it,
// whatever the checkpoint calls its weights.
func TestEmbedMerged(t *testing.T) {
	l := newLab(t)
	texts := l.file("texts.txt", strings.Join(embedTexts(t), "\n"))
	for _, name := range []string{"bert", "bert-head", "bert-old"} {
		dir := encoders + "/" + name
		succeed(t, "merge", "-m", dir, "-a", dir+"/adapter", "-o", l.path(name), "--dtype", "f32")
		succeed(t, "embed", "-m", l.path(name), "-i", texts, "-o", l.path("v.safetensors"))
		requireVectors(t, vectorsOf(t, dir+"/golden.safetensors", "embedding.adapter"), vectorsOf(t, l.path("v.safetensors"), "embeddings"))
	}
}

// The flags stand in for what the folder says.
func TestEmbedFlags(t *testing.T) {
	embed := func(args ...string) []float32 {
		var row []float32
		r := command(t, "A cat sat on the mat.", append([]string{"embed", "-m", encoders + "/bert-old"}, args...)...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &row))
		return row
	}
	both := embed()
	require.InDeltaSlice(t, both[:24], embed("--pooling", "max"), 1e-6)
	require.InDeltaSlice(t, both[24:], embed("--pooling", "mean_sqrt_len_tokens"), 1e-6)
	require.InDeltaSlice(t, append(embed("--pooling", "cls"), both[:24]...), embed("--pooling", "cls,max"), 1e-6)
	squares := 0.0
	for _, x := range embed("--normalize") {
		squares += float64(x) * float64(x)
	}
	require.InDelta(t, 1, squares, 1e-5)
	require.NotEqual(t, both, embed("--max-length", "5"))
	require.NotEqual(t, both, embed("--prompt", "query: "))
}

// No texts are no vectors, and a tensor of none.
func TestEmbedNothing(t *testing.T) {
	l := newLab(t)
	require.Empty(t, succeed(t, "embed", "-m", encoders+"/bert"))
	succeed(t, "embed", "-m", encoders+"/bert", "-o", l.path("none.safetensors"))
	require.Empty(t, vectorsOf(t, l.path("none.safetensors"), "embeddings"))
}

func TestEmbedErrors(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		stdin string
		args  []string
		says  string
	}{
		{"", nil, "--model is missing"},
		{"", []string{"-m", encoders + "/bert", "--prompt", "a", "--prompt-name", "b"}, "found --prompt and --prompt-name"},
		{"", []string{"-m", encoders + "/bert", "--prompt-name", "b"}, `unknown prompt: "b"; the model has none`},
		{"", []string{"-m", encoders + "/bert", "--pooling", "meen"}, `--pooling: unsupported sentence-transformers module: pooling_mode "meen"`},
		{"", []string{"-m", encoders + "/bert", "--max-length", "-2"}, "max length -2"},
		{"", []string{"-m", encoders + "/bert", "-i", "/no/such/texts"}, "/no/such/texts"},
		{"", []string{"-m", encoders + "/bert", "-o", "/no/such/folder/x.jsonl"}, "/no/such/folder"},
		{"\"a\"\n", []string{"-m", encoders + "/bert", "--json"}, "standard input:1: not"},
		{"{\"text\": \"a\"}\n{\"txt\": 1}\n", []string{"-m", encoders + "/bert", "--json"}, "standard input:2: found no text"},
		{"ok\n\xff\n", []string{"-m", encoders + "/bert"}, "text 1"},
		{"", []string{"-m", l.path("")}, "config.json"},
	} {
		r := command(t, c.stdin, append([]string{"embed"}, c.args...)...)
		require.Equal(t, ExitUsage, r.status, "%v: %s", c.args, r.stderr)
		require.Contains(t, r.stderr, c.says)
		require.Empty(t, r.stdout)
	}
	files, err := filepath.Glob(l.path("*"))
	require.NoError(t, err)
	require.Empty(t, files)
}
