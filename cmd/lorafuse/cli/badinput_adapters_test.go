package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

const (
	loraA = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
	loraB = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
)

// adapted runs compare with an adapter that something was done to.
func adapted(do func(l *lab, adapter string)) func(*lab) []string {
	return func(l *lab) []string {
		a := l.adapter()
		do(l, a)
		return []string{"compare", "--model", llama, "--adapter", a, "--golden", llamaGolden}
	}
}

// adapterTensors changes the tensors of the adapter.
func adapterTensors(change func(e *safetensors.Entry) bool) func(*lab) []string {
	return adapted(func(l *lab, a string) { l.tensors(filepath.Join(a, lora.WeightsFile), change) })
}

// adapterConfig changes a key of adapter_config.json.
func adapterConfig(key string, value any) func(*lab) []string {
	return adapted(func(l *lab, a string) { l.setJSON(filepath.Join(a, lora.ConfigFile), map[string]any{key: value}) })
}

// zeroB makes the adapter that training begins with.
func zeroB(e *safetensors.Entry) bool {
	if strings.Contains(e.Name, "lora_B") {
		clear(e.Data)
	}
	return true
}

// swapped lays A as [in, rank] and B as [rank, out].
func swapped(e *safetensors.Entry) bool {
	slices.Reverse(e.Shape)
	return true
}

// withZeroB runs another command with an adapter that does nothing.
func withZeroB(args ...string) func(*lab) []string {
	return func(l *lab) []string {
		a := l.adapter()
		l.tensors(filepath.Join(a, lora.WeightsFile), zeroB)
		return append(args, "--model", llama, "--adapter", a)
	}
}

// merging merges the adapter into the model in the lab.
func mergeInto(output string, more ...string) func(*lab) []string {
	return func(l *lab) []string {
		return append([]string{"merge", "--model", l.model(), "--adapter", l.adapter(), "--output", l.path(output)}, more...)
	}
}

var badAdapters = []bad{
	{name: "missing adapter", args: say("compare", "--model", llama, "--adapter", "/no/such/adapter", "--golden", llamaGolden), says: []string{"/no/such/adapter"}},
	{name: "adapter is a model", args: say("compare", "--model", llama, "--adapter", llama, "--golden", llamaGolden), says: []string{"adapter_config.json"}},
	{name: "adapter without weights", args: adapted(func(l *lab, a string) { l.remove(a + "/adapter_model.safetensors") }), says: []string{"adapter_model.safetensors"}},
	{name: "adapter config is no JSON", args: adapted(func(l *lab, a string) { l.file("adapter/adapter_config.json", "{'r': 8}") }), says: []string{"adapter_config.json"}},
	{name: "another method", args: adapterConfig("peft_type", "IA3"), says: []string{"peft_type", "IA3"}},
	{name: "setting that is not supported", args: adapterConfig("use_qalora", true), says: []string{"use_qalora"}},
	{name: "adapter of rank 0", args: adapterConfig("r", 0), says: []string{"rank must be at least 1"}},
	{name: "rank is a word", args: adapterConfig("r", "eight"), says: []string{"adapter_config.json", "eight"}},
	{name: "rank of another adapter", args: adapterConfig("r", 4), says: []string{loraA, "its rank is 8, that of the configuration 4"}},
	{name: "alpha 0", args: adapterConfig("lora_alpha", 0), says: []string{"lora_alpha"}},
	{name: "targets that are not there", args: adapterConfig("target_modules", []string{"query"}), says: []string{"query", "q_proj"}},
	{name: "fewer targets than tensors", args: adapterConfig("target_modules", []string{"v_proj"}), says: []string{loraA, "matches no target"}},
	{name: "more targets than tensors", args: adapterConfig("target_modules", []string{"q_proj", "v_proj", "k_proj"}), says: []string{"k_proj", "missing"}},
	{name: "truncated adapter", args: adapted(func(l *lab, a string) { l.truncate(a+"/adapter_model.safetensors", 4) }), says: []string{"adapter_model.safetensors", "cut short"}},
	{name: "adapter tensor missing", args: adapterTensors(func(e *safetensors.Entry) bool { return e.Name != loraB }), says: []string{loraB, "missing"}},
	{name: "A and B transposed", args: adapterTensors(swapped), says: []string{loraA, "transposed", "[64 8]", "[8 64]"}},
	{name: "NaN in an adapter", args: adapterTensors(nan(loraB)), says: []string{loraB, "NaN"}},
	{name: "adapter of whole numbers", args: adapterTensors(func(e *safetensors.Entry) bool {
		e.DType = safetensors.U32
		return true
	}), says: []string{loraA, "U32"}},
	{name: "adapter for another model", args: say("compare", "--model", llama, "--adapter", goldens+"/peft/head-tied/adapter", "--golden", llamaGolden), says: []string{"head-tied", "expected"}},
	{name: "compare with B zero", args: withZeroB("compare", "--golden", llamaGolden), says: []string{loraB, "does nothing"}},
	{name: "generate with B zero", args: withZeroB("generate", "--prompt", "x"), says: []string{loraB, "does nothing"}},
	{name: "eval with B zero", args: withZeroB("eval", "--data", "x.jsonl"), says: []string{loraB, "does nothing"}},
	{name: "merge with B zero", args: func(l *lab) []string {
		return append(withZeroB("merge")(l), "--output", l.path("merged"))
	}, says: []string{loraB, "does nothing"}},
	{name: "inspect an adapter for another model", args: say("inspect", goldens+"/peft/head-tied/adapter", "--model", llama), says: []string{"does not fit"}, status: ExitDifferent},
	{name: "merge to an unknown dtype", args: mergeInto("merged", "--dtype", "fp16"), says: []string{"--dtype", `"fp16"`, "f16"}},
	{name: "merge in shards of nothing", args: mergeInto("merged", "--max-shard-size", "5 parsecs"), says: []string{"--max-shard-size", "5 parsecs"}},
	{name: "merge into a missing folder", args: mergeInto("no/such/merged"), says: []string{"no/such"}},
	{name: "merge into a file", args: func(l *lab) []string {
		l.file("merged", "mine")
		return mergeInto("merged")(l)
	}, says: []string{"merged", "file"}},
	{name: "merge into a folder in use", args: func(l *lab) []string {
		l.file("merged/notes.txt", "mine")
		return mergeInto("merged")(l)
	}, says: []string{"merged", "not empty", "--force"}},
	{name: "merge into the model", args: mergeInto("model", "--force"), says: []string{"the folder that is read"}},
	{name: "merge beyond f16", args: func(l *lab) []string {
		args := mergeInto("merged", "--dtype", "f16")(l)
		l.tensors(weightsFile(l.path("model")), func(e *safetensors.Entry) bool {
			if e.Name == "model.norm.weight" {
				*e = floats(e.Name, make([]float32, 64), 64)
				copy(e.Data, floats("", []float32{1e6}, 1).Data)
			}
			return true
		})
		return args
	}, says: []string{"model.norm.weight", "1e+06", "f16"}, status: ExitFailure},
	{name: "merge to infinity", args: func(l *lab) []string {
		args := mergeInto("merged")(l)
		l.tensors(filepath.Join(l.path("adapter"), lora.WeightsFile), func(e *safetensors.Entry) bool {
			if e.Name == loraA || e.Name == loraB {
				big := make([]float32, len(e.Data)/4)
				for i := range big {
					big[i] = 3e38
				}
				e.Data = floats("", big).Data
			}
			return true
		})
		return args
	}, says: []string{"q_proj", "not finite"}, status: ExitFailure},
}

// generating runs generate on the small model.
func generating(args ...string) func(*lab) []string {
	return say(append([]string{"generate", "--model", llama}, args...)...)
}

var badGeneration = []bad{
	{name: "two prompts", args: generating("--prompt", "x", "--chat", "c.json"), says: []string{"--prompt and --chat"}},
	{name: "empty prompt", args: generating("--prompt", ""), says: []string{"prompt is empty"}},
	{name: "empty input", args: generating(), says: []string{"prompt is empty"}},
	{name: "prompt is not UTF-8", args: generating("--prompt", "caf\xe9"), says: []string{"UTF-8"}},
	{name: "too long prompt", args: generating("--prompt", strings.Repeat("word ", 300)), says: []string{"too many tokens", "128"}},
	{name: "negative temperature", args: generating("--prompt", "x", "--temperature", "-1"), says: []string{"temperature is -1"}},
	{name: "temperature is no number", args: generating("--prompt", "x", "--temperature", "NaN"), says: []string{"temperature is NaN"}},
	{name: "top-p of 2", args: generating("--prompt", "x", "--top-p", "2"), says: []string{"top_p is 2"}},
	{name: "no penalty", args: generating("--prompt", "x", "--repetition-penalty", "0"), says: []string{"--repetition-penalty: found 0"}},
	{name: "no new tokens", args: generating("--prompt", "x", "-n", "0"), says: []string{"--max-new-tokens: found 0"}},
	{name: "empty stop", args: generating("--prompt", "x", "--stop", ""), says: []string{"--stop"}},
	{name: "two shapes", args: generating("--prompt", "x", "--json-object", "--schema", "s.json"), says: []string{"--schema and --json-object"}},
	{name: "schema is missing", args: generating("--prompt", "x", "--schema", "/no/such/schema.json"), says: []string{"--schema", "/no/such/schema.json"}},
	{name: "schema with an unknown keyword", args: func(l *lab) []string {
		return generating("--prompt", "x", "--schema", l.file("s.json", `{"items":{"minimun":1}}`))(l)
	}, says: []string{"--schema", "s.json", "#/items", `did you mean "minimum"?`}},
	{name: "raw chat", args: generating("--raw", "--chat", "c.json"), says: []string{"--raw"}},
	{name: "interactive JSON", args: generating("-i", "--json"), says: []string{"--interactive"}},
	{name: "chat without a template", args: generating("--chat", "-"), stdin: `[{"role": "user", "content": "x"}]`, says: []string{"chat template"}},
	{name: "conversation without a template", args: generating("-i"), says: []string{"chat template"}},
	{name: "chat is missing", args: generating("--chat", "/no/such/chat.json"), says: []string{"--chat", "/no/such/chat.json"}},
	{name: "chat is no JSON", args: generating("--chat", "-"), stdin: "hello", says: []string{"--chat standard input", `"role"`}},
	{name: "chat without messages", args: generating("--chat", "-"), stdin: "[]", says: []string{"no messages"}},
	{name: "message without a role", args: generating("--chat", "-"), stdin: `[{"content": "x"}]`, says: []string{"role"}},
	{name: "template is no Jinja", args: func(l *lab) []string {
		return generating("--chat", "-", "--chat-template", l.file("t.jinja", "{% for m in %}"))(l)
	}, stdin: `[{"role": "user", "content": "x"}]`, says: []string{"t.jinja"}},
	{name: "missing prompts", args: generating("--prompts", "/no/such/prompts.jsonl"), says: []string{"--prompts", "/no/such/prompts.jsonl"}},
	{name: "prompt without a key", args: generating("--prompts", "-"), stdin: `{"promt": "x"}`, says: []string{"standard input:1", "neither prompt nor messages"}},
	{name: "generation_config.json is no JSON", args: func(l *lab) []string {
		m := l.model()
		l.file("model/generation_config.json", "{")
		return []string{"generate", "--model", m, "--prompt", "x"}
	}, says: []string{"generation_config.json"}},
	{name: "NaN in weights to generate", args: func(l *lab) []string {
		m := l.model()
		l.tensors(weightsFile(m), nan("model.norm.weight"))
		return []string{"generate", "--model", m, "--prompt", "x"}
	}, says: []string{"NaN"}, status: ExitFailure},
}

// golden runs compare with a golden file of these tensors.
func comparing(entries ...safetensors.Entry) func(*lab) []string {
	return func(l *lab) []string {
		return []string{"compare", "--model", llama, "--golden", l.write("golden.safetensors", entries...)}
	}
}

// tokenizing runs tokenize on the small model.
func tokenizingWith(args ...string) func(*lab) []string {
	return say(append([]string{"tokenize", "--model", llama}, args...)...)
}

var badFiles = []bad{
	{name: "missing golden file", args: say("compare", "--model", llama, "--golden", "/no/such/golden.safetensors"), says: []string{"/no/such/golden.safetensors"}},
	{name: "golden without logits", args: comparing(ints("input_ids", []int64{1, 2}, 1, 2)), says: []string{"golden.safetensors", "no logits", "input_ids"}},
	{name: "golden ids of one dimension", args: comparing(ints("input_ids", []int64{1, 2}, 2), floats("logits", make([]float32, 1024), 1, 2, 512)), says: []string{"input_ids", "[2]"}},
	{name: "golden logits of other rows", args: comparing(ints("input_ids", []int64{1, 2}, 1, 2), floats("logits", make([]float32, 512), 1, 1, 512)), says: []string{"logits", "[1 1 512]", "[1, 2, vocabulary]"}},
	{name: "golden of another vocabulary", args: comparing(ints("input_ids", []int64{1, 2}, 1, 2), floats("logits", make([]float32, 20), 1, 2, 10)), says: []string{"10", "512"}},
	{name: "golden ids outside of the vocabulary", args: comparing(ints("input_ids", []int64{1, 700}, 1, 2), floats("logits", make([]float32, 1024), 1, 2, 512)), says: []string{"row 0", "700"}},
	{name: "golden ids below 0", args: comparing(ints("input_ids", []int64{1, -3}, 1, 2), floats("logits", make([]float32, 1024), 1, 2, 512)), says: []string{"-3"}},
	{name: "golden of no rows", args: comparing(ints("input_ids", nil, 0, 2), floats("logits", nil, 0, 2, 512)), says: []string{"input_ids", "[0 2]"}},
	{name: "negative tolerance", args: say("compare", "--model", llama, "--golden", llamaGolden, "--tolerance", "-1"), says: []string{"--tolerance: found -1"}},
	{name: "logits that differ", args: comparing(ints("input_ids", []int64{1, 2}, 1, 2), floats("logits", slices.Repeat([]float32{1}, 1024), 1, 2, 512)), says: []string{"tolerance of 1e-05"}, status: ExitDifferent},
	{name: "diff of a missing file", args: say("diff", "/no/such/a.safetensors", llama), says: []string{"/no/such/a.safetensors"}},
	{name: "diff of an empty folder", args: func(l *lab) []string { return []string{"diff", l.dir, llama} }, says: []string{"model.safetensors"}},
	{name: "diff of text", args: func(l *lab) []string { return []string{"diff", l.file("a.txt", "hello, this is text"), llama} }, says: []string{"a.txt"}},
	{name: "diff of different models", args: say("diff", llama, goldens+"/lm/llama/model-bf16"), says: []string{"21 of 21 tensors"}, status: ExitDifferent},
	{name: "tolerance is no number", args: say("diff", llama, llama, "--tolerance", "NaN"), says: []string{"--tolerance"}},
	{name: "inspect nothing", args: say("inspect", "/no/such/folder"), says: []string{"/no/such/folder"}},
	{name: "inspect an empty folder", args: func(l *lab) []string { return []string{"inspect", l.dir} }, says: []string{"config.json"}},
	{name: "inspect a picture", args: func(l *lab) []string { return []string{"inspect", l.file("a.png", "\x89PNG\r\n\x1a\n0000")} }, says: []string{"a.png"}},
	{name: "inspect a model with --model", args: say("inspect", llama, "--model", llama), says: []string{"--model", "adapter"}},
	{name: "tokenize without a tokenizer", args: func(l *lab) []string { return []string{"tokenize", "--model", l.dir} }, says: []string{"tokenizer.json"}},
	{name: "tokenize no JSON", args: tokenizingWith("--json"), stdin: "{\"text\": \"a\"}\nhello\n", says: []string{"standard input:2"}},
	{name: "tokenize both", args: tokenizingWith("--json"), stdin: `{"text": "a", "ids": [1]}`, says: []string{"standard input:1", "text and ids"}},
	{name: "tokenize neither", args: tokenizingWith("--json"), stdin: `{"txt": "a"}`, says: []string{"neither text nor ids"}},
	{name: "tokenize a negative id", args: tokenizingWith("--json"), stdin: `{"ids": [3, -1]}`, says: []string{"-1"}},
	{name: "tokenize an id out of range", args: tokenizingWith("--json"), stdin: `{"ids": [99999999999]}`, says: []string{"standard input:1", "99999999999"}},
	{name: "tokenize words as ids", args: tokenizingWith("--decode"), stdin: "1 2 three", says: []string{`"three"`}},
	{name: "tokenize a missing file", args: tokenizingWith("/no/such/lines"), says: []string{"/no/such/lines"}},
	{name: "tokenize text that is not UTF-8", args: tokenizingWith(), stdin: "ok\ncaf\xe9\n", says: []string{"standard input:2", "UTF-8"}},
	{name: "file name with a line break", args: func(l *lab) []string {
		require.NoError(l.t, os.Mkdir(l.path("a\nb"), 0o777))
		return []string{"inspect", l.path("a\nb")}
	}, says: []string{"a; b"}},
}

// converting runs convert on a file of two tensors.
func converting(output string, args ...string) func(*lab) []string {
	return func(l *lab) []string {
		path := l.write("in.safetensors", floats("model.norm.weight", []float32{1}, 1), ints("ids", []int64{1}, 1))
		return append([]string{"convert", path, l.path(output)}, args...)
	}
}

var badConversions = []bad{
	{name: "no output to convert to", args: say("convert", "a"), says: []string{"OUTPUT is missing"}},
	{name: "convert nothing", args: say("convert", "/no/such/a.safetensors", "x.safetensors"), says: []string{"/no/such/a.safetensors"}},
	{name: "convert text", args: func(l *lab) []string { return []string{"convert", l.file("a.txt", "hello, this is text"), l.path("x")} }, says: []string{"a.txt"}},
	{name: "convert an empty folder", args: func(l *lab) []string { return []string{"convert", l.dir, "x.safetensors"} }, says: []string{"no weights", "model.safetensors"}},
	{name: "convert to a broken type", args: converting("x.safetensors", "--dtype", "bf61"), says: []string{`"bf61"`, `did you mean "bf16"`}},
	{name: "convert to whole numbers", args: converting("x.safetensors", "--dtype", "i8"), says: []string{`--dtype: found "i8"`, "f32"}},
	{name: "convert with a bad size", args: converting("x", "--max-shard-size", "5 PB"), says: []string{"--max-shard-size", "5 PB"}},
	{name: "shards of one file", args: converting("x.safetensors", "--max-shard-size", "5GB"), says: []string{"--max-shard-size", "one file"}},
	{name: "stem of one file", args: converting("x.safetensors", "--stem", "y"), says: []string{"--stem", "one file"}},
	{name: "stem with a folder", args: converting("x", "--stem", "../y"), says: []string{`"../y"`}},
	{name: "convert to PyTorch", args: converting("x.bin"), says: []string{"x.bin", "safetensors"}},
	{name: "keep without a type", args: converting("x.safetensors", "--keep", "*"), says: []string{"--keep", "--dtype"}},
	{name: "keep nothing", args: converting("x.safetensors", "--dtype", "bf16", "--keep", "model.nrom.weight"), says: []string{"--keep", `"model.nrom.weight"`, `did you mean "model.norm.weight"`}},
	{name: "convert onto itself", args: converting("in.safetensors", "--force"), says: []string{"in.safetensors", "what is read"}},
	{name: "convert onto its folder", args: converting(".", "--force"), says: []string{"what is read"}},
	{name: "convert onto a file", args: func(l *lab) []string {
		l.file("x", "mine")
		return converting("x", "--force")(l)
	}, says: []string{"there is a file of that name"}},
	{name: "convert onto what exists", args: func(l *lab) []string {
		l.file("x.safetensors", "mine")
		return converting("x.safetensors")(l)
	}, says: []string{"x.safetensors", "it exists", "--force"}},
	{name: "convert into no folder", args: converting("no/x.safetensors"), says: []string{"there is no folder"}},
	{name: "convert a model onto itself", args: func(l *lab) []string {
		m := l.model()
		return []string{"convert", m, m, "--force"}
	}, says: []string{"what is read"}},
	{name: "convert a model cut short", args: func(l *lab) []string {
		m := l.model()
		l.truncate(weightsFile(m), 100)
		return []string{"convert", m, l.path("x")}
	}, says: []string{"model.safetensors", "cut short"}},
	{name: "convert without a shard", args: func(l *lab) []string {
		m := l.copy(goldens+"/lm/qwen2/model-sharded", "model")
		l.remove(m + "/model-00002-of-00005.safetensors")
		return []string{"convert", m, l.path("x")}
	}, says: []string{"model-00002-of-00005.safetensors", "missing"}},
	{name: "verify without a shard", args: func(l *lab) []string {
		m := l.copy(goldens+"/lm/qwen2/model-sharded", "model")
		l.remove(m + "/model-00002-of-00005.safetensors")
		return []string{"inspect", m, "--verify"}
	}, says: []string{"model-00002-of-00005.safetensors", "missing"}},
	{name: "inspect of no tensor", args: say("inspect", llama, "--tensor", "model.nrom.weight"), says: []string{"--tensor", `did you mean "model.norm.weight"`}},
}
