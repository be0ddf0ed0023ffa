package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/safetensors"
)

// bad is a command line that must fail: with one line that names the culprit
// and leaves everything as it was.
type bad struct {
	name    string
	args    func(l *lab) []string
	says    []string // parts of the message
	status  int      // ExitUsage where 0
	stdin   string
	changes bool // files may have changed: what was there before counts no more
}

func (b bad) run(t *testing.T) {
	l := newLab(t)
	args := b.args(l)
	before := l.tree()
	r := command(t, b.stdin, args...)
	want := b.status
	if want == 0 {
		want = ExitUsage
	}
	assert.Equal(t, want, r.status, r.stderr)
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	last := lines[len(lines)-1]
	assert.True(t, strings.HasPrefix(last, "lorafuse: "), last)
	t.Log(last)
	for _, line := range lines[:len(lines)-1] {
		assert.NotContains(t, line, "lorafuse: ", "more than one line of error")
	}
	for _, s := range b.says {
		assert.Contains(t, last, s)
	}
	assert.NotContains(t, r.stderr, "Usage:")
	assert.NotContains(t, r.stderr, "goroutine")
	assert.NotContains(t, r.stderr, "internal error")
	if !b.changes {
		assert.Equal(t, before, l.tree(), "something was written")
	}
}

func TestBadInput(t *testing.T) {
	for _, table := range [][]bad{badUsage, badModels, badRuns, badData, badAdapters, badGeneration, badFiles, badConversions} {
		for _, b := range table {
			t.Run(b.name, b.run)
		}
	}
}

// say gives fixed arguments.
func say(args ...string) func(*lab) []string { return func(*lab) []string { return args } }

var badUsage = []bad{
	{name: "unknown command", args: say("trian"), says: []string{`"trian"`, `did you mean "train"`}},
	{name: "unknown subcommand", args: say("hub", "downlod"), says: []string{`"downlod"`, `did you mean "download"`}},
	{name: "unknown help topic", args: say("help", "merg"), says: []string{`"merg"`, `did you mean "merge"`}},
	{name: "unknown flag", args: say("merge", "--modle", "x"), says: []string{"--modle", `did you mean "--model"`, "lorafuse merge --help"}},
	{name: "flag without value", args: say("merge", "--model"), says: []string{"--model"}},
	{name: "flag is no number", args: say("generate", "--top-k", "many"), says: []string{`--top-k: found "many", expected a whole number`}},
	{name: "a chain without a rank", args: say("graph", "dump", "--chain", "8,64,32"), says: []string{"--chain", "found 3 sizes"}},
	{name: "a chain of no rows", args: say("graph", "dump", "--chain", "0,64,32,8"), says: []string{"--chain", "rows is 0"}},
	{name: "a chain and a model", args: say("graph", "dump", "--chain", "8,64,32,8", "--model", llama), says: []string{"--chain and --model"}},
	{name: "two adapters", args: say("generate", "--model", llama, "--adapter", "a", "-a", "b", "--prompt", "x"), says: []string{`lorafuse: generate: --adapter: given twice, "a" and then "b", expected once; see`}},
	{name: "two adapters to merge", args: say("merge", "--model", llama, "--adapter", "a", "--adapter", "b", "--output", "x"), says: []string{"--adapter: given twice"}},
	{name: "a number twice", args: say("eval", "--threads", "1", "--threads", "2"), says: []string{`--threads: given twice, "1" and then "2"`}},
	{name: "yes and no", args: say("convert", "--verify", "--verify=false"), says: []string{"--verify: given twice"}},
	{name: "negative seed", args: say("generate", "--seed", "-1"), says: []string{`--seed: found "-1", expected a whole number of 0 or more`}},
	{name: "no configuration", args: say("train"), says: []string{"CONFIG.yaml is missing"}},
	{name: "one argument too many", args: say("devices", "x"), says: []string{`unexpected argument "x"`}},
	{name: "second configuration", args: say("train", "a.yaml", "b.yaml"), says: []string{`unexpected argument "b.yaml"`}},
	{name: "no model", args: say("generate", "--prompt", "x"), says: []string{"--model is missing"}},
	{name: "no adapter to merge", args: say("merge", "--model", llama, "--output", "x"), says: []string{"--adapter is missing"}},
	{name: "no output", args: say("merge", "--model", llama, "--adapter", llamaLoRA), says: []string{"--output is missing"}},
	{name: "no golden file", args: say("compare", "--model", llama), says: []string{"--golden is missing"}},
	{name: "no data", args: say("eval", "--model", llama), says: []string{"--data is missing"}},
	{name: "one path to diff", args: say("diff", "a"), says: []string{"B is missing"}},
	{name: "unknown key to explain", args: say("config", "adapter.rnak_pattern"), says: []string{`"adapter.rnak_pattern"`, `"adapter.rank_pattern"`}},
	{name: "absent backend", args: say("compare", "--model", llama, "--golden", llamaGolden, "--backend", backend.CUDA), says: []string{"backend cuda", "unavailable", backend.CPU}},
	{name: "a ring for the CPU", args: say("eval", "--model", llama, "--data", "x.jsonl", "--backend", backend.CPU, "--load", "ring"), says: []string{"--load", "backend cpu", "ring", "auto or plain"}},
	{name: "unknown way to load", args: say("generate", "--model", llama, "--prompt", "x", "--load", "fast"), says: []string{"--load", `"fast"`, "auto, ring, register or plain"}},
	{name: "unknown backend", args: say("eval", "--model", llama, "--data", "x.jsonl", "--backend", "gpu"), says: []string{`"gpu"`, "known: auto"}},
	{name: "negative threads", args: say("eval", "--model", llama, "--data", "x.jsonl", "--threads", "-2"), says: []string{"--threads: found -2"}},
	{name: "unknown benchmark", args: say("bench", "laod"), says: []string{`"laod"`, `did you mean "load"`}},
	{name: "benchmark of no size", args: say("bench", "load", "--size", "huge"), says: []string{"--size", `"huge"`}},
	{name: "benchmark of too small a size", args: say("bench", "load", "--size", "1KB"), says: []string{"found a size of 1000 bytes"}},
	{name: "benchmark without runs", args: say("bench", "load", "--runs", "0"), says: []string{"found 0 runs, expected 1 or more"}},
	{name: "benchmark of nothing", args: say("bench", "load", "--only", "sving"), says: []string{"no row matches", "sving"}},
	{name: "bad expression of rows", args: say("bench", "load", "--only", "("), says: []string{"--only", "missing closing )"}},
	{name: "no peers", args: say("bench", "load", "--peers", "/no/such/folder"), says: []string{"--peers", "/no/such/folder/peers.json", "build.sh"}},
	{name: "no folder for a benchmark", args: say("bench", "load", "--dir", "/no/such/folder"), says: []string{"/no/such/folder"}},
	{name: "plan of no tokens", args: say("bench", "plan", "--size", "tiny", "--tokens", "0"), says: []string{"bench plan: tokens: found 0, expected 1 to 1048576"}},
	{name: "plan of no size", args: say("bench", "plan", "--size", "tyni"), says: []string{"bench plan: --size", `did you mean "tiny"`}},
	{name: "two kinds of reports", args: say("bench", "load", "--json", "--markdown"), says: []string{"json", "markdown"}},
	{name: "unknown precision", args: say("eval", "--model", llama, "--data", "x.jsonl", "--precision", "f16"), says: []string{`--precision: found "f16"`, "f32, bf16 or auto"}},
	{name: "not a hub name", args: say("hub", "download", "a/b/c"), says: []string{"a/b/c"}},
}

// weightsFile is the file of a model's weights.
func weightsFile(model string) string { return filepath.Join(model, safetensors.ModelFile) }

// damaged runs compare on a model that something was done to.
func damaged(do func(l *lab, model string)) func(*lab) []string {
	return func(l *lab) []string {
		m := l.model()
		do(l, m)
		return []string{"compare", "--model", m, "--golden", llamaGolden}
	}
}

// configured changes config.json.
func configured(key string, value any) func(*lab) []string {
	return damaged(func(l *lab, m string) { l.setJSON(filepath.Join(m, "config.json"), map[string]any{key: value}) })
}

var badModels = []bad{
	{name: "missing model", args: say("compare", "--model", "/no/such/model", "--golden", llamaGolden), says: []string{"/no/such/model"}},
	{name: "model is a file", args: say("compare", "--model", llama+"/config.json", "--golden", llamaGolden), says: []string{"config.json"}},
	{name: "missing config.json", args: damaged(func(l *lab, m string) { l.remove(m + "/config.json") }), says: []string{"config.json", "no such file"}},
	{name: "config.json is no JSON", args: damaged(func(l *lab, m string) { l.file("model/config.json", `{"architectures": [`) }), says: []string{"config.json"}},
	{name: "unknown architecture", args: configured("architectures", []string{"LlamaForCausalML"}), says: []string{`"LlamaForCausalML"`, `did you mean "LlamaForCausalLM"`, "nearest of the"}},
	{name: "unknown rope scaling", args: configured("rope_parameters", map[string]any{"rope_type": "spiral", "rope_theta": 1e4}), says: []string{"config.json", "spiral"}},
	{name: "unknown activation", args: configured("hidden_act", "mish"), says: []string{"hidden_act", "mish"}},
	{name: "size of a wrong kind", args: configured("hidden_size", "64"), says: []string{"hidden_size"}},
	{name: "heads that do not divide", args: configured("num_key_value_heads", 3), says: []string{"num_key_value_heads"}},
	{name: "no layers", args: configured("num_hidden_layers", 0), says: []string{"num_hidden_layers"}},
	{name: "wrong shape", args: configured("intermediate_size", 96), says: []string{"mlp", "[128 64]", "[96 64]"}},
	{name: "vocabulary of another size", args: configured("vocab_size", 500), says: []string{"embed_tokens", "[512 64]", "[500 64]"}},
	{name: "missing weights", args: damaged(func(l *lab, m string) { l.remove(weightsFile(m)) }), says: []string{"model.safetensors"}},
	{name: "truncated weights", args: damaged(func(l *lab, m string) { l.truncate(weightsFile(m), 100) }), says: []string{"model.safetensors", "cut short"}},
	{name: "weights are something else", args: damaged(func(l *lab, m string) { l.file("model/model.safetensors", strings.Repeat("x", 100)) }), says: []string{"model.safetensors", "header"}},
	{name: "empty weights", args: damaged(func(l *lab, m string) { l.file("model/model.safetensors", "") }), says: []string{"model.safetensors"}},
	{name: "missing tensor", args: damaged(func(l *lab, m string) {
		l.tensors(weightsFile(m), func(e *safetensors.Entry) bool { return e.Name != "model.layers.1.mlp.up_proj.weight" })
	}), says: []string{"model.layers.1.mlp.up_proj.weight"}},
	{name: "weights of whole numbers", args: damaged(func(l *lab, m string) {
		l.tensors(weightsFile(m), func(e *safetensors.Entry) bool {
			if e.Name == "model.norm.weight" {
				e.DType = safetensors.I32
			}
			return true
		})
	}), says: []string{"model.norm.weight", "I32"}},
	{name: "NaN in weights", args: damaged(func(l *lab, m string) { l.tensors(weightsFile(m), nan("model.norm.weight")) }), says: []string{"differ"}, status: ExitDifferent},
	{name: "missing shard", args: func(l *lab) []string {
		m := l.copy(goldens+"/lm/qwen2/model-sharded", "model")
		l.remove(m + "/model-00002-of-00005.safetensors")
		return []string{"compare", "--model", m, "--golden", goldens + "/lm/qwen2/golden.safetensors"}
	}, says: []string{"model-00002-of-00005.safetensors"}},
}

// training runs a configuration with more YAML behind it.
func training(more string, args ...string) func(*lab) []string {
	return func(l *lab) []string { return append([]string{"train", l.settings(llama, more)}, args...) }
}

// trained runs a training first, which leaves a checkpoint at step 2.
func trained(do func(l *lab), args ...string) func(*lab) []string {
	return func(l *lab) []string {
		file := l.settings(llama, "save_steps: 2\n")
		succeed(l.t, "train", file)
		if do != nil {
			do(l)
		}
		return append([]string{"train", file}, args...)
	}
}

var badRuns = []bad{
	{name: "missing configuration", args: say("train", "/no/such/train.yaml"), says: []string{"/no/such/train.yaml"}},
	{name: "bad YAML", args: func(l *lab) []string { return []string{"train", l.file("c.yaml", "model: [x\n")} }, says: []string{"c.yaml:"}},
	{name: "YAML is a list", args: func(l *lab) []string { return []string{"train", l.file("c.yaml", "- model\n")} }, says: []string{"c.yaml:1"}},
	{name: "no keys", args: func(l *lab) []string { return []string{"train", l.file("c.yaml", "")} }, says: []string{"model"}},
	{name: "unknown key", args: training("lerning_rate: 1\n"), says: []string{"train.yaml:6", "lerning_rate", `did you mean "learning_rate"`}},
	{name: "another trainer's key", args: training("num_train_epochs: 1\n"), says: []string{"num_train_epochs", `"epochs"`}},
	{name: "--set typo", args: training("", "--set", "adapter.lora_alhpa=4"), says: []string{"--set", "lora_alhpa", `"lora_alpha"`}},
	{name: "--set without value", args: training("", "--set", "seed"), says: []string{"--set", "key=value"}},
	{name: "rank 0", args: training("", "--set", "adapter.r=0"), says: []string{"adapter.r", "found 0"}},
	{name: "dropout 1", args: training("", "--set", "adapter.lora_dropout=1"), says: []string{"lora_dropout", "found 1"}},
	{name: "word for a number", args: training("", "--set", "batch_size=many"), says: []string{"batch_size", `"many"`}},
	{name: "unknown schedule", args: training("", "--set", "schedule=cosin"), says: []string{"schedule", `did you mean "cosine"`}},
	{name: "steps and epochs", args: training("epochs: 2\n"), says: []string{"epochs", "steps"}},
	{name: "unknown target", args: training("", "--set", "adapter.target_modules=[q_prj]"), says: []string{"q_prj", `did you mean "q_proj"`}},
	{name: "one target unknown", args: training("", "--set", "adapter.target_modules=[q_proj, w_proj]"), says: []string{"w_proj"}},
	{name: "bad expression", args: training("", "--set", "adapter.target_modules=(q_proj"), says: []string{"target_modules"}},
	{name: "layer that is not there", args: training("", "--set", "adapter.target_modules=[q_proj]", "--set", "adapter.layers_to_transform=[7]"), says: []string{"layers_to_transform", "7"}},
	{name: "training on an absent backend", args: training("", "--set", "backend=metal"), says: []string{"backend metal", "unavailable"}},
	{name: "too little memory", args: training("", "--set", "memory_limit=64KiB"), says: []string{"out of memory", "memory_limit is 64.0 KiB"}, status: ExitFailure},
	{name: "too small a budget", args: training("", "--memory", "64KiB"), says: []string{"out of memory", "the smallest plan", "more than memory: 64.0 KiB"}, status: ExitFailure},
	{name: "a budget without a unit that is one", args: training("", "--memory", "4Gb8"), says: []string{"--memory", `"4Gb8"`, "such as 8GiB"}},
	{name: "two limits of memory", args: training("memory_limit: 1GiB\n", "--memory", "1GiB"), says: []string{"memory_limit", "given besides memory"}},
	{name: "packing sometimes", args: training("", "--pack", "sometimes"), says: []string{"pack", `"sometimes"`, "never, auto or always"}},
	{name: "training with registered weights on the CPU", args: training("", "--load", "register", "--set", "backend=cpu"), says: []string{"--load", "backend cpu", "register", "auto or plain"}},
	{name: "a ring in the configuration", args: training("load: ring\nbackend: cpu\n"), says: []string{"load: backend cpu", "ring", "auto or plain"}},
	{name: "output is a file", args: func(l *lab) []string {
		l.file("output", "mine")
		return training("")(l)
	}, says: []string{"output_dir"}},
	{name: "output under a file", args: func(l *lab) []string {
		return append(training("")(l), "--set", "output_dir="+l.file("notes", "mine")+"/output")
	}, says: []string{"output_dir", "notes"}},
	{name: "loss is not a number", args: func(l *lab) []string {
		m := l.model()
		l.tensors(weightsFile(m), nan("model.norm.weight"))
		return []string{"train", l.settings(m, "")}
	}, says: []string{"step 1", "not finite"}, status: ExitFailure, changes: true},
	{name: "started twice", args: trained(nil), says: []string{"checkpoints of an earlier run", "--resume"}},
	{name: "nothing to resume", args: training("", "--resume"), says: []string{"nothing to resume: no checkpoint-* in output_dir ", "leave resume out"}},
	{name: "resume from nothing", args: training("", "--resume=/no/such/checkpoint"), says: []string{"/no/such/checkpoint"}},
	{name: "resume with other settings", args: trained(nil, "--resume", "--set", "learning_rate=1"), says: []string{"checkpoint-2", "learning_rate was 0.0002, is now 1"}},
	{name: "resume with other data", args: trained(func(l *lab) { l.file("train.jsonl", `{"text": "something else"}`) }, "--resume"), says: []string{"checkpoint-2"}},
	{name: "damaged progress", args: trained(func(l *lab) { l.file("output/checkpoint-2/training.json", "{") }, "--resume"), says: []string{"checkpoint-2", "training.json"}},
	{name: "truncated moments", args: trained(func(l *lab) { l.truncate(l.path("output/checkpoint-2/optimizer.safetensors"), 8) }, "--resume"), says: []string{"optimizer.safetensors", "cut short"}},
	{name: "missing adapter to start from", args: training("", "--set", "init_adapter=/no/such/adapter"), says: []string{"/no/such/adapter"}},
}

// onData trains on one file of that content.
func onData(name, content string, args ...string) func(*lab) []string {
	return func(l *lab) []string {
		file := l.settings(llama, "")
		return append([]string{"train", file, "--set", "data.train=" + l.file(name, content)}, args...)
	}
}

var badData = []bad{
	{name: "missing data", args: training("", "--set", "data.train=/no/such/rows.jsonl"), says: []string{"/no/such/rows.jsonl"}},
	{name: "data is a folder", args: training("", "--set", "data.train="+goldens, "--set", "data.format=text"), says: []string{goldens}},
	{name: "empty data", args: onData("rows.jsonl", ""), says: []string{"rows.jsonl"}},
	{name: "blank data", args: onData("rows.jsonl", "\n\n"), says: []string{"rows.jsonl"}},
	{name: "line is no JSON", args: onData("rows.jsonl", `{"text": "a b c"}`+"\n"+`{"text": `), says: []string{"rows.jsonl:2"}},
	{name: "line without a known key", args: onData("rows.jsonl", `{"txt": "a b c"}`), says: []string{"rows.jsonl:1", "txt"}},
	{name: "two kinds of lines", args: onData("rows.jsonl", `{"text": "a b c"}`+"\n"+`{"prompt": "a", "completion": "b"}`), says: []string{"rows.jsonl:2"}},
	{name: "text is a number", args: onData("rows.jsonl", `{"text": 5}`), says: []string{"rows.jsonl:1", "text"}},
	{name: "text is not UTF-8", args: onData("rows.txt", "caf\xe9 au lait"), says: []string{"rows.txt", "UTF-8"}},
	{name: "too long sequence", args: onData("rows.jsonl", `{"text": "one two three four five six"}`, "--set", "data.max_length=4", "--set", "data.on_too_long=error"), says: []string{"rows.jsonl:1", "max_length"}},
	{name: "unknown ending", args: onData("rows.csv", "a,b"), says: []string{"rows.csv"}},
	{name: "messages without a template", args: onData("rows.jsonl", `{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}`), says: []string{"template"}},
	{name: "template is missing", args: training("", "--set", "data.chat_template=/no/such/template.jinja"), says: []string{"data.chat_template", "/no/such/template.jinja"}},
	{name: "token outside of the vocabulary", args: func(l *lab) []string {
		file := l.settings(llama, "")
		rows := l.write("rows.safetensors", ints("input_ids", []int64{1, 2, 600, 3}, 1, 4), ints("labels", []int64{1, 2, 600, 3}, 1, 4))
		return []string{"train", file, "--set", "data.train=" + rows}
	}, says: []string{"rows.safetensors", "600"}},
	{name: "labels of another shape", args: func(l *lab) []string {
		file := l.settings(llama, "")
		rows := l.write("rows.safetensors", ints("input_ids", []int64{1, 2, 6, 3}, 1, 4), ints("labels", []int64{1, 2}, 1, 2))
		return []string{"train", file, "--set", "data.train=" + rows}
	}, says: []string{"rows.safetensors", "labels"}},
	{name: "tokens without input_ids", args: func(l *lab) []string {
		file := l.settings(llama, "")
		return []string{"train", file, "--set", "data.train=" + l.write("rows.safetensors", ints("ids", []int64{1, 2}, 1, 2))}
	}, says: []string{"rows.safetensors", "input_ids"}},
	{name: "missing tokenizer", args: func(l *lab) []string {
		m := l.model()
		l.remove(m + "/tokenizer.json")
		return []string{"train", l.settings(m, "")}
	}, says: []string{"tokenizer.json"}},
	{name: "unknown kind of tokenizer", args: func(l *lab) []string {
		m := l.model()
		l.file("model/tokenizer.json", `{"version": "1.0", "model": {"type": "Magic", "vocab": {}}}`)
		return []string{"train", l.settings(m, "")}
	}, says: []string{"tokenizer.json", "Magic"}},
	{name: "missing data to evaluate on", args: say("eval", "--model", llama, "--data", "/no/such/rows.jsonl"), says: []string{"/no/such/rows.jsonl"}},
	{name: "unknown train-on", args: func(l *lab) []string {
		return []string{"eval", "--model", llama, "--train-on", "answers", "--data", l.file("rows.jsonl", `{"text": "a b c"}`)}
	}, says: []string{"answers", "all"}},
	{name: "batches of nothing", args: say("eval", "--model", llama, "--data", "x.jsonl", "--batch-size", "0"), says: []string{"--batch-size: found 0"}},
	{name: "rows of nothing", args: say("eval", "--model", llama, "--data", "x.jsonl", "--max-length", "1"), says: []string{"--max-length: found 1"}},
	{name: "NaN in weights to evaluate", args: func(l *lab) []string {
		m := l.model()
		l.tensors(weightsFile(m), nan("model.norm.weight"))
		return []string{"eval", "--model", m, "--data", l.file("rows.jsonl", `{"text": "a b c d"}`)}
	}, says: []string{"loss is NaN"}, status: ExitFailure},
}

func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full here")
	}
	defer full.Close()
	for _, args := range [][]string{{"config"}, {"devices", "--json"}, {"generate", "--model", llama, "--prompt", "x", "-n", "4"}, {"inspect", llama}, {"version"}, {"--help"}} {
		var errs strings.Builder
		status := Run(t.Context(), args, strings.NewReader(""), full, &errs)
		require.Equal(t, ExitFailure, status, args)
		require.Contains(t, errs.String(), "lorafuse: standard output: ", args)
	}
}
