package cli

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

const preferenceRows = `{"prompt": "two and two", "chosen": " are four", "rejected": " are five"}
{"prompt": "the sky is", "chosen": " blue", "rejected": " green"}
{"prompt": "yes or no?", "chosen": " yes", "rejected": " no"}
{"prompt": "what comes after one", "chosen": " two", "rejected": " three"}
`

// TestTrainPreference: preferences are learned, the adapter generates, and what reads rows
// of language says where preferences belong.
func TestTrainPreference(t *testing.T) {
	const tiny = "../../../testdata/lm/llama/model"
	l := newLab(t)
	rows := l.file("rows.jsonl", preferenceRows)
	file := l.file("train.yaml", fmt.Sprintf("model: %s\noutput_dir: %s\ntask: preference\npreference: {beta: 0.5}\ndata: {train: %s, eval: %s}\nadapter: {r: 4, target_modules: all-linear}\n"+
		"batch_size: 2\nsteps: 10\nlearning_rate: 1e-2\neval_at_start: true\n", tiny, l.path("output"), rows, rows))
	r := command(t, "", "train", file)
	require.Equal(t, ExitOK, r.status, r.stderr)
	require.Regexp(t, `eval     loss 0\.693\d, accuracy [\d.]+ % before the first step`, r.stderr)
	require.Contains(t, r.stdout, "accuracy 100.0 %\n")
	require.Contains(t, r.stdout, "use it   lorafuse generate --model "+tiny+" --adapter "+l.path("output/adapter"))
	succeed(t, "generate", "-m", tiny, "-a", l.path("output/adapter"), "--prompt", "two and two", "--max-new-tokens", "3")
	metrics, err := os.ReadFile(l.path("output/metrics.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(metrics), `"rewards/margins"`)

	for _, row := range []string{preferenceRows, `{"input": {"messages": []}, "preferred_output": [], "non_preferred_output": []}`} {
		r = command(t, "", "eval", "-m", tiny, "-d", l.file("preferences.jsonl", row))
		require.NotEqual(t, ExitOK, r.status)
		require.Contains(t, r.stderr, "preferences are learned with task: preference")
	}
}
