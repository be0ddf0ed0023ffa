package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/safetensors"
)

// cases are the folders that match a pattern, of which there must be some.
func cases(t *testing.T, pattern string) []string {
	paths, err := filepath.Glob(goldens + "/" + pattern)
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

// decode reads the JSON that a command printed, or a file.
func decode[T any](t testing.TB, raw string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(raw), &v))
	return v
}

func readJSON[T any](t testing.TB, path string) T {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return decode[T](t, string(raw))
}

// TestCompareGoldens holds every recorded model and adapter against the logits
// of PyTorch.
func TestCompareGoldens(t *testing.T) {
	for _, golden := range append(cases(t, "lm/*/golden.safetensors"), cases(t, "lm/*/adapters/*/golden.safetensors")...) {
		dir := filepath.Dir(golden)
		args := []string{"compare", "--json", "--golden", golden, "--model"}
		if filepath.Base(filepath.Dir(dir)) == "adapters" {
			args = append(args, filepath.Dir(filepath.Dir(dir))+"/model", "--adapter", dir)
		} else {
			args = append(args, dir+"/model")
		}
		c := decode[comparison](t, succeed(t, args...))
		assert.Less(t, c.MaxAbs, 1e-4, golden)
		assert.Less(t, c.Relative, 1e-5, golden)
		assert.Positive(t, c.MaxLogit)
		assert.InDelta(t, c.Golden, c.Logit, c.MaxAbs*1.0001)
	}
}

// TestCompareFindsTheElement moves one logit and expects to be told which.
func TestCompareFindsTheElement(t *testing.T) {
	l := newLab(t)
	path := filepath.Join(l.copy(goldens+"/lm/llama", "lm"), "golden.safetensors")
	l.tensors(path, func(e *safetensors.Entry) bool {
		if e.Name == "logits" {
			at := (1*e.Shape[1]+3)*e.Shape[2] + 77
			copy(e.Data[4*at:], floats("", []float32{9}, 1).Data)
		}
		return e.Name == "logits" || e.Name == "input_ids"
	})
	r := command(t, "", "compare", "--model", llama, "--golden", path, "--json")
	require.Equal(t, ExitDifferent, r.status)
	c := decode[comparison](t, r.stdout)
	assert.Equal(t, []int{1, 3, 77}, []int{c.Row, c.Position, c.Token})
	assert.Equal(t, 9.0, c.Golden)
	assert.Equal(t, 9.0, c.MaxLogit)
	assert.InDelta(t, 9-c.Logit, c.MaxAbs, 1e-6)
	assert.InDelta(t, c.MaxAbs/9, c.Relative, 1e-9)
	assert.False(t, c.Equal)
	for factor, status := range map[float64]int{0.999: ExitDifferent, 1.001: ExitOK} {
		r := command(t, "", "compare", "--model", llama, "--golden", path, "--tolerance", fmt.Sprint(c.Relative*factor))
		assert.Equal(t, status, r.status, "the tolerance is of the relative difference")
	}
}

// trace is a training run as PEFT recorded it.
type trace struct {
	Hyperparameters struct {
		Steps       int
		LR          float64
		Betas       [2]float64
		Eps         float64
		WeightDecay float64 `json:"weight_decay"`
		MaxGradNorm float64 `json:"max_grad_norm"`
		Scheduler   string
		WarmupSteps int `json:"warmup_steps"`
	}
	Trace []struct {
		Loss     float64
		GradNorm float64 `json:"grad_norm"`
		LR       float64
	}
}

// TestTraces repeats the recorded runs by the user's own commands: train from
// the first adapter on the recorded batches, diff with the last one.
func TestTraces(t *testing.T) {
	for _, dir := range cases(t, "lm/*/train/*") {
		tr := readJSON[trace](t, dir+"/trace.json")
		require.NotEmpty(t, tr.Trace)
		l, h := newLab(t), tr.Hyperparameters
		config := l.file("trace.yaml", fmt.Sprintf(`
model: %s/model
output_dir: %s
init_adapter: %s/init
data: {train: %s/batches.safetensors}
batch_size: 4
steps: %d
learning_rate: %g
betas: [%g, %g]
eps: %g
weight_decay: %g
max_grad_norm: %g
schedule: %s
warmup_steps: %d
`, filepath.Dir(filepath.Dir(dir)), l.path("output"), dir, dir, h.Steps, h.LR, h.Betas[0], h.Betas[1], h.Eps, h.WeightDecay, h.MaxGradNorm, h.Scheduler, h.WarmupSteps))
		s := decode[train.Summary](t, succeed(t, "train", config, "--json"))
		assert.Equal(t, h.Steps, s.Steps)
		raw, err := os.ReadFile(l.path("output/metrics.jsonl"))
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		require.Len(t, lines, len(tr.Trace))
		for i, want := range tr.Trace {
			got := decode[struct {
				Loss     float64
				GradNorm float64 `json:"grad_norm"`
				LR       float64 `json:"learning_rate"`
			}](t, lines[i])
			assert.InDelta(t, want.Loss, got.Loss, 2e-5, "%s step %d", dir, i)
			assert.InEpsilon(t, want.GradNorm, got.GradNorm, 1e-4, "%s step %d", dir, i)
			assert.InDelta(t, want.LR, got.LR, 1e-12, "%s step %d", dir, i)
		}
		succeed(t, "diff", l.path("output/adapter"), dir+"/final", "--tolerance", "2e-4")
	}
}

// TestEvalGoldens: the loss of labels = input_ids is recorded.
func TestEvalGoldens(t *testing.T) {
	for _, golden := range cases(t, "lm/*/golden.safetensors") {
		l := newLab(t)
		f, err := safetensors.Open(golden)
		require.NoError(t, err)
		ids, err := f.Lookup("input_ids")
		require.NoError(t, err)
		recorded, err := f.Lookup("loss")
		require.NoError(t, err)
		want, err := safetensors.As[float32](recorded)
		require.NoError(t, err)
		entry := func(name string) safetensors.Entry {
			return safetensors.Entry{Name: name, DType: ids.DType, Shape: ids.Shape, Data: ids.Bytes()}
		}
		rows := l.write("rows.safetensors", entry("input_ids"), entry("labels"))
		e := decode[evaluation](t, succeed(t, "eval", "--json", "--model", filepath.Dir(golden)+"/model", "--data", rows, "--batch-size", "1"))
		assert.InDelta(t, want[0], e.Loss, 1e-5, golden)
		assert.Equal(t, ids.Shape[0]*(ids.Shape[1]-1), e.Tokens)
		assert.Equal(t, ids.Shape[0], e.Rows)
		again := decode[evaluation](t, succeed(t, "eval", "--json", "--model", filepath.Dir(golden)+"/model", rows, "--threads", "1"))
		assert.InDelta(t, e.Loss, again.Loss, 1e-6, "the size of a batch changed the loss")
		require.NoError(t, f.Close())
	}
}

// TestTokenizeGoldens gives every recorded text to the command, both ways.
func TestTokenizeGoldens(t *testing.T) {
	for _, path := range cases(t, "tokenizers/[lqw]*/golden.json") {
		rows := readJSON[[]struct {
			Text    string
			IDs     []int32
			Decoded string
		}](t, path)
		require.NotEmpty(t, rows)
		var texts, ids strings.Builder
		for _, r := range rows {
			require.NoError(t, encode(&texts, map[string]string{"text": r.Text}, ""))
			require.NoError(t, encode(&ids, map[string][]int32{"ids": r.IDs}, ""))
		}
		for name, input := range map[string]string{"text": texts.String(), "ids": ids.String()} {
			r := command(t, input, "tokenize", "--json", "--model", filepath.Dir(path))
			require.Equal(t, ExitOK, r.status, r.stderr)
			lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
			require.Len(t, lines, len(rows))
			for i, line := range lines {
				got := decode[tokenized](t, line)
				assert.Equal(t, append([]int32{}, rows[i].IDs...), got.IDs, "%s %s %d", path, name, i)
				assert.Equal(t, rows[i].Decoded, got.Text, "%s %s %d", path, name, i)
			}
		}
	}
}

// TestComparisonText: what is infinite is said in words, and null in JSON.
func TestComparisonText(t *testing.T) {
	for says, r := range map[string]*comparison{
		"1 absolute, 0.5 of the largest logit (2)":                {MaxAbs: 1, Relative: 0.5, MaxLogit: 2},
		"1 absolute, none relative: all logits of the file are 0": {MaxAbs: 1, Relative: math.Inf(1)},
		"what is not finite on one side alone":                    {MaxAbs: math.Inf(1), Relative: math.Inf(1), MaxLogit: 2, Logit: math.NaN()},
	} {
		assert.Equal(t, says, r.String())
		text, err := json.Marshal(r.printable())
		require.NoError(t, err)
		assert.Equal(t, math.IsInf(r.Relative, 0), strings.Contains(string(text), `"relative_difference":null`), string(text))
	}
}
