package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// labelledRows are rows of two classes.
func labelledRows() string {
	var rows strings.Builder
	for i := range 8 {
		fmt.Fprintf(&rows, `{"text": "the %s, number %d", "label": %q}`+"\n", []string{"cat", "station"}[i%2], i, []string{"animal", "place"}[i%2])
	}
	return rows.String()
}

// A classifier goes through all commands: it is trained, evaluated, looked at and merged,
// and what only answers in text refuses it.
func TestClassifierCommands(t *testing.T) {
	for _, name := range []string{"bert", "llama"} {
		l := newLab(t)
		base, rows, adapter := encoders+"/"+name, l.file("rows.jsonl", labelledRows()), l.path("output/adapter")
		file := l.file("train.yaml", fmt.Sprintf("model: %s\noutput_dir: %s\ntask: classification\ndata: {train: %s, eval: %s}\nadapter: {r: 4, target_modules: all-linear}\n"+
			"batch_size: 4\nsteps: 30\nlearning_rate: 1e-2\neval_at_start: true\n", base, l.path("output"), rows, rows))
		r := command(t, "", "train", file)
		require.Equal(t, ExitOK, r.status, r.stderr)
		require.Contains(t, r.stdout, "accuracy 100.0 %\n")
		require.Contains(t, r.stdout, "use it   lorafuse eval --model "+base+" --adapter "+adapter+" --data rows.jsonl\n")
		require.Contains(t, r.stderr, "head     single_label_classification, 2 classes: animal, place\n")
		require.Regexp(t, `eval     loss [\d.]+, accuracy [\d.]+ % before the first step`, r.stderr)
		require.Regexp(t, `eval     loss [\d.]+, accuracy 100.0 % after step 30`, r.stderr)

		var e classification
		require.NoError(t, json.Unmarshal([]byte(succeed(t, "eval", "-m", base, "-a", adapter, "-d", rows, "--json", "--scores", l.path("a.safetensors"))), &e))
		require.Equal(t, 1.0, *e.Accuracy)
		require.Equal(t, []string{"animal", "place"}, e.Labels)
		require.Less(t, e.Loss, 0.1)
		require.Contains(t, succeed(t, "eval", "-m", base, "-a", adapter, "-d", rows), "accuracy    1\n")

		text := succeed(t, "inspect", adapter, "--model", base)
		require.Contains(t, text, "SEQ_CLS")
		require.Contains(t, text, "2, single_label_classification: animal, place")

		succeed(t, "merge", "-m", base, "-a", adapter, "-o", l.path("merged"))
		require.Contains(t, succeed(t, "inspect", l.path("merged")), "ForSequenceClassification")
		var again classification
		require.NoError(t, json.Unmarshal([]byte(succeed(t, "eval", "-m", l.path("merged"), "-d", rows, "--json", "--scores", l.path("b.safetensors"))), &again))
		require.InDelta(t, e.Loss, again.Loss, 1e-5)
		require.Equal(t, e.Labels, again.Labels)
		was, is := vectorsOf(t, l.path("a.safetensors"), "scores"), vectorsOf(t, l.path("b.safetensors"), "scores")
		for i := range was {
			require.InDeltaSlice(t, was[i], is[i], 1e-4)
		}

		for _, args := range [][]string{{"generate", "--prompt", "a"}, {"embed", "-i", rows}} {
			r := command(t, "", append(args, "-m", base, "-a", adapter)...)
			require.Equal(t, ExitUsage, r.status)
			require.Contains(t, r.stderr, args[0]+": adapter "+adapter+" is one of a classifier (task_type SEQ_CLS)")
		}
		r = command(t, "", "generate", "-m", l.path("merged"), "-p", "a")
		require.Equal(t, ExitUsage, r.status)
		require.Contains(t, r.stderr, "the architecture does not have it: the task \"next token\"; it has")
		for says, args := range map[string][]string{
			"--labels: found 3 names, expected 2":            {"--labels", "a,b,c"},
			`label: found "animal", expected "x" or "place"`: {"--labels", "x,place"},
			"eval: a regression of 2 numbers":                {"--problem", "regression"},
			"label: found text":                              {"--problem", "multi_label_classification"},
		} {
			r := command(t, "", append([]string{"eval", "-m", base, "-a", adapter, "-d", rows}, args...)...)
			require.Equal(t, ExitUsage, r.status)
			require.Contains(t, r.stderr, says)
		}
	}
}

// A checkpoint that says nothing of a document or of its next token is refused before
// its data are read.
func TestEvalWithoutHead(t *testing.T) {
	r := command(t, "", "eval", "-m", encoders+"/bert", "-d", newLab(t).file("rows.jsonl", labelledRows()))
	require.Equal(t, ExitUsage, r.status)
	require.Contains(t, r.stderr, "eval: BertModel: the architecture does not have it: expected a language model or a classifier")
}
