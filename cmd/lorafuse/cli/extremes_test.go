package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/train/config"
)

// extremes are values that a whole number or a float can be given by mistake; those that differ least from others need
// LORAFUSE_LONG.
var extremes = []string{"0", "-1", "1000000000", "9223372036854775807", "1e300", ".nan"}

func init() {
	if os.Getenv("LORAFUSE_LONG") != "" {
		extremes = append(extremes, "1", "2147483648", "9007199254740992", "1e-300", ".inf", "-.inf")
	}
}

// bounded runs a command line that must end in a plan or in one line of error,
// soon and without much memory.
func bounded(t *testing.T, args ...string) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	r := command(t, "", args...)
	runtime.ReadMemStats(&after)
	what := strings.Join(args, " ")
	assert.Contains(t, []int{ExitOK, ExitDifferent, ExitUsage, ExitFailure}, r.status, what)
	assert.NotContains(t, r.stderr, "internal error", what)
	assert.NotContains(t, r.stderr, "goroutine", what)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30), what)
	assert.Less(t, time.Since(began), time.Minute, what)
	if r.status != ExitOK {
		assert.Equal(t, 1, strings.Count(r.stderr, "lorafuse: "), "%s: %s", what, r.stderr)
		t.Log(what[strings.LastIndex(what, "--"):], "→", strings.TrimSpace(r.stderr))
	}
}

// numeric are the keys of the configuration that hold numbers, each with
// assignments for a value.
func numeric(k config.Key) []string {
	switch k.Path {
	case "betas":
		return []string{"betas=[%s, 0.5]", "betas=[0.5, %s]"}
	case "adapter.rank_pattern", "adapter.alpha_pattern":
		return []string{k.Path + ".q_proj=%s"}
	case "adapter.layers_to_transform":
		return []string{k.Path + "=[0, %s]"}
	case "adapter.trainable_token_indices":
		return []string{k.Path + "=[%s]"}
	}
	if strings.Contains(k.Type, "number") || strings.Contains(k.Type, "bytes") {
		return []string{k.Path + "=%s"}
	}
	return nil
}

// sizes are keys that others multiply.
var sizes = []string{"data.max_length", "batch_size", "gradient_accumulation_steps", "epochs", "steps", "adapter.r"}

// TestExtremeKeys sets every number of the configuration to extremes, alone and
// with what multiplies it: a plan or an error, never the end of the process.
// Without LORAFUSE_LONG keys that are no sizes get every other value in turn.
func TestExtremeKeys(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	for i, k := range config.Keys() {
		for _, assignment := range numeric(k) {
			t.Run(k.Path, func(t *testing.T) {
				l := newLab(t)
				file := l.settings(llama, "adapter:\n  target_modules: [q_proj, v_proj]\n")
				for n, x := range extremes {
					if n%2 != i%2 && os.Getenv("LORAFUSE_LONG") == "" && !slices.Contains(sizes, k.Path) {
						continue
					}
					set := fmt.Sprintf(assignment, x)
					bounded(t, "train", file, "--dry-run", "--set", set)
					switch k.Path {
					case "data.max_length", "batch_size", "gradient_accumulation_steps":
						bounded(t, "train", file, "--dry-run", "--set", "data.packing=true", "--set", set)
						bounded(t, "train", file, "--dry-run", "--set", "data.length_bucketing=true", "--set", set)
						bounded(t, "train", file, "--dry-run", "--memory", "1GiB", "--set", set)
					case "epochs":
						bounded(t, "train", file, "--dry-run", "--set", "steps=0", "--set", set)
					}
				}
			})
		}
	}
}

// TestAbsurdKeysAreRefused says what a message of TestExtremeKeys must be.
func TestAbsurdKeysAreRefused(t *testing.T) {
	l := newLab(t)
	file := l.settings(llama, "")
	for set, says := range map[string]string{
		"threads=100000":                                  "threads: found 100000, expected a whole number ≥ 0 and ≤ 1024",
		"adapter.r=9223372036854775807":                   "adapter.r: found 9223372036854775807, expected a whole number ≥ 1 and ≤ 65536",
		"data.max_length=9223372036854775807":             "data.max_length: found 9223372036854775807, expected a whole number ≥ 2 and ≤ 2147483647",
		"gradient_accumulation_steps=9223372036854775807": "expected a whole number ≥ 1 and ≤ 1048576",
		"batch_size=9223372036854775807":                  "expected a whole number ≥ 1 and ≤ 1048576",
		"epochs=1e300":                                    "epochs: found 1e+300, expected a number ≥ 0 and ≤ 1000000",
		"output_dir=":                                     "output_dir: found nothing, expected text: it may be left out, but not be empty",
		"adapter.lora_alpha=1e300":                        "adapter.lora_alpha: found 1e+300",
		"adapter.rank_pattern.q_proj=9223372036854775807": "adapter.rank_pattern",
		"learning_rate=1e300":                             "learning_rate: found 1e+300",
		"steps=9223372036854775807":                       "steps: found 9223372036854775807",
	} {
		r := command(t, "", "train", file, "--dry-run", "--set", set)
		require.Equal(t, ExitUsage, r.status, set)
		assert.Contains(t, r.stderr, says, set)
	}
}

// TestExtremeFlags does the same with the flags of commands.
func TestExtremeFlags(t *testing.T) {
	l := newLab(t)
	rows := l.file("rows.jsonl", `{"text": "the quick brown fox"}`+"\n")
	for _, c := range []struct {
		args  []string
		flags []string
	}{
		{[]string{"generate", "--model", llama, "--prompt", "the", "--max-new-tokens", "2"},
			[]string{"--threads", "--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty", "--seed"}},
		{[]string{"generate", "--model", llama, "--prompt", "the"}, []string{"--max-new-tokens"}},
		{[]string{"eval", "--model", llama, "--data", rows}, []string{"--threads", "--max-length", "--batch-size"}},
		{[]string{"compare", "--model", llama, "--golden", llamaGolden}, []string{"--threads", "--tolerance"}},
		{[]string{"merge", "--model", llama, "--adapter", llamaLoRA, "--output", l.path("merged"), "--force"}, []string{"--max-shard-size"}},
		{[]string{"train", l.settings(llama, ""), "--dry-run"}, []string{"--memory"}},
	} {
		for _, flag := range c.flags {
			t.Run(c.args[0]+" "+flag, func(t *testing.T) {
				for _, x := range extremes {
					x = strings.TrimPrefix(strings.Replace(x, "-.", "-", 1), ".")
					if flag == "--max-shard-size" && x == "1" {
						continue // a file for each tensor, which is slow
					}
					bounded(t, append(c.args[:len(c.args):len(c.args)], flag+"="+x)...)
				}
			})
		}
	}
}

// TestExtremeModels does the same with the numbers of config.json and
// adapter_config.json.
func TestExtremeModels(t *testing.T) {
	set := func(t *testing.T, key string, args func(l *lab, m, a string) []string) {
		for _, x := range extremes {
			if strings.Contains(x, ".") {
				continue // no JSON
			}
			l := newLab(t)
			m, a := l.model(), l.adapter()
			file := m + "/config.json"
			if rest, ok := strings.CutPrefix(key, "adapter "); ok {
				key, file = rest, a+"/adapter_config.json"
			}
			value := any(json.Number(x))
			switch key {
			case "rank_pattern", "alpha_pattern":
				value = map[string]any{"q_proj": value}
			case "layers_to_transform", "trainable_token_indices":
				value = []any{value}
			}
			if kind, part, ok := strings.Cut(key, " "); ok {
				rope := map[string]any{"rope_type": kind, "rope_theta": 1e4, "factor": 2, "original_max_position_embeddings": 64}
				rope[part] = value
				l.setJSON(file, map[string]any{"rope_parameters": rope})
			} else {
				l.setJSON(file, map[string]any{key: value})
			}
			bounded(t, args(l, m, a)...)
		}
	}
	for _, key := range []string{
		"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
		"vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "sliding_window", "max_window_layers",
		"eos_token_id", "bos_token_id", "pad_token_id",
		"linear factor", "linear rope_theta", "dynamic factor", "dynamic rope_theta", "yarn factor", "yarn beta_fast", "yarn beta_slow", "yarn attention_factor",
		"yarn mscale", "yarn original_max_position_embeddings", "llama3 factor", "llama3 low_freq_factor", "llama3 high_freq_factor",
	} {
		t.Run(key, func(t *testing.T) {
			set(t, key, func(l *lab, m, a string) []string {
				return []string{"generate", "--model", m, "--prompt", "the quick", "--max-new-tokens=9223372036854775807"}
			})
		})
	}
	for _, key := range []string{"r", "lora_alpha", "lora_dropout", "rank_pattern", "alpha_pattern", "layers_to_transform", "trainable_token_indices"} {
		t.Run(key, func(t *testing.T) {
			set(t, "adapter "+key, func(l *lab, m, a string) []string {
				return []string{"generate", "--model", m, "--adapter", a, "--prompt", "the", "--max-new-tokens", "2"}
			})
		})
	}
}
