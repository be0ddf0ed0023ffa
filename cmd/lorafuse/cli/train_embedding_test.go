package cli

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// pairRows are rows of pairs for the encoders of the goldens.
const pairRows = `{"anchor": "A cat sat on the mat.", "positive": "the cat is on a mat"}
{"anchor": "Where is the nearest station?", "positive": "the station"}
{"anchor": "the lazy dog", "positive": "a dog that is lazy"}
{"anchor": "few weights", "positive": "weights that are few"}
`

// An adapter that is trained by pairs brings these near each other: what the run
// measures at its end, and what embed makes of the texts.
func TestTrainEmbedding(t *testing.T) {
	for _, model := range []string{"bert", "llama"} {
		l := newLab(t)
		rows := l.file("pairs.jsonl", pairRows)
		file := l.file("train.yaml", fmt.Sprintf("model: %s\noutput_dir: %s\ntask: embedding\ndata: {train: %s, eval: %s}\nadapter: {r: 4, target_modules: all-linear}\n"+
			"batch_size: 4\nsteps: 30\nlearning_rate: 1e-2\neval_at_start: true\n", encoders+"/"+model, l.path("output"), rows, rows))
		r := command(t, "", "train", file)
		require.Equal(t, ExitOK, r.status, r.stderr)
		adapter := l.path("output/adapter")
		require.Contains(t, r.stdout, "use it   lorafuse embed --model "+encoders+"/"+model+" --adapter "+adapter+" --input texts.txt\n")
		require.Regexp(t, `eval     [\d.]+ → 0\.0`, r.stdout)
		if model == "bert" {
			require.Contains(t, r.stderr, "no effect on the loss, saved as they are: pooler.dense\n")
			require.Contains(t, command(t, "", "inspect", adapter, "--model", encoders+"/bert").stdout, "without effect: base_model.model.pooler.dense.lora_B.weight")
		}
		texts := l.file("texts.txt", "A cat sat on the mat.\nthe cat is on a mat\nWhere is the nearest station?\nthe station\n")
		cosines := func(args ...string) (own, other float64) {
			succeed(t, append([]string{"embed", "-m", encoders + "/" + model, "-i", texts, "-o", l.path("v.safetensors"), "--normalize"}, args...)...)
			v := vectorsOf(t, l.path("v.safetensors"), "embeddings")
			for i := range v[0] {
				own += float64(v[0][i] * v[1][i])
				other += float64(v[0][i] * v[3][i])
			}
			return own, other
		}
		own, other := cosines()
		tunedOwn, tunedOther := cosines("-a", adapter)
		require.Greater(t, tunedOwn-tunedOther, own-other+0.1, "%s: %v %v → %v %v", model, own, other, tunedOwn, tunedOther)
	}
}

func TestTrainEmbeddingErrors(t *testing.T) {
	l := newLab(t)
	rows := l.file("pairs.jsonl", pairRows)
	triples := l.file("triples.jsonl", `{"anchor": "a", "positive": "b", "negative": "c"}`)
	file := l.file("train.yaml", fmt.Sprintf("model: %s\noutput_dir: %s\ntask: embedding\ndata: {train: %s}\n", encoders+"/bert", l.path("output"), rows))
	for says, set := range map[string]string{
		"batch_size: not what the task needs: found 1":                           "batch_size=1",
		"data.eval: not what the task needs: found rows of 3 texts, expected 2":  "data.eval=" + triples,
		"data.max_length: texts have at most 2 tokens, expected more than the 2": "data.max_length=2",
		`text.jsonl:1: found ["text"], expected anchor and positive`:             "data.train=" + l.file("text.jsonl", `{"text": "a"}`),
		"micro-batches of 8 rows were not cut, since the texts of a micro-batch": "memory=100KiB",
	} {
		r := command(t, "", "train", file, "--set", set)
		require.NotEqual(t, ExitOK, r.status)
		require.Contains(t, r.stderr, says)
	}
}
