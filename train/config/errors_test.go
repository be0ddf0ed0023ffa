package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		yaml string
		set  string
		is   error
		text string
	}{
		{"no model", "data: {train: t}\n", "", ErrMissing,
			"model: missing, expected: Folder of a Hugging Face checkpoint, or its name on the hub as owner/name[@revision]."},
		{"no data", "model: m\n", "", ErrMissing, "data.train: missing"},
		{"empty file", "", "", ErrMissing, "model: missing"},
		{"a slip", least + "batchsize: 3\n", "", ErrUnknownKey,
			`c.yaml:3: batchsize: unknown key, did you mean "batch_size"?`},
		{"a slip in a section", "model: m\ndata:\n  trian: x\n", "", ErrUnknownKey,
			`c.yaml:3: data.trian: unknown key, did you mean "train"?`},
		{"another trainer's name", least + "adapter: {rank: 8}\n", "", ErrUnknownKey,
			`c.yaml:3: adapter.rank: unknown key, here it is called "adapter.r"`},
		{"another trainer's name, elsewhere", least + "max_seq_length: 8\n", "", ErrUnknownKey,
			`max_seq_length: unknown key, here it is called "data.max_length"`},
		{"at home in a section", least + "target_modules: x\n", "", ErrUnknownKey,
			`target_modules: unknown key, did you mean "adapter.target_modules"?`},
		{"at home in a section, and like a slip here", least + "packing: true\n", "", ErrUnknownKey,
			`packing: unknown key, did you mean "data.packing"?`},
		{"PEFT's, not supported", least + "adapter:\n  r: 4\n  loftq_config: {}\n", "", ErrUnknownKey,
			`c.yaml:5: adapter.loftq_config: this key of PEFT's configuration is not supported here`},
		{"nothing like it", least + "log: {colour: red}\n", "", ErrUnknownKey,
			`log.colour: unknown key, log has steps, metrics, tensorboard, mlflow, plot`},
		{"twice", least + "seed: 1\nseed: 2\n", "", ErrSyntax, "c.yaml:4: seed: given twice"},
		{"rank 0", least + "adapter:\n  r: 0\n", "", ErrValue,
			"c.yaml:4: adapter.r: found 0, expected a whole number ≥ 1"},
		{"not whole", least + "batch_size: 2.5\n", "", ErrValue,
			"c.yaml:3: batch_size: found 2.5, expected a whole number ≥ 1"},
		{"text for a number", least + "learning_rate: fast\n", "", ErrValue,
			`c.yaml:3: learning_rate: found "fast", expected a number ≥ 0`},
		{"quoted number", least + "learning_rate: '0.1'\n", "", ErrValue,
			`learning_rate: found "0.1", expected a number ≥ 0`},
		{"not finite", least + "learning_rate: .nan\n", "", ErrValue, "found .nan, expected a number ≥ 0"},
		{"dropout 1", least + "adapter: {lora_dropout: 1.0}\n", "", ErrValue,
			"adapter.lora_dropout: found 1, expected a number ≥ 0 and < 1"},
		{"yes is not true", least + "eval_at_end: yes\n", "", ErrValue,
			`eval_at_end: found "yes", expected true or false`},
		{"a list for text", "model: [a, b]\n", "", ErrValue, "c.yaml:1: model: found a list of 2, expected text"},
		{"a mapping for a list", "model: m\ndata: {train: {a: b}}\n", "", ErrValue,
			"data.train: found a mapping, expected text or a list of text"},
		{"an empty path", "model: m\ndata: {train: ['']}\n", "", ErrValue, `data.train: found "", expected text`},
		{"text for a section", least + "log: loud\n", "", ErrValue,
			`c.yaml:3: log: found "loud", expected a mapping of keys to values`},
		{"a list for a file", "- a\n", "", ErrValue, "c.yaml:1: found a list of 1, expected a mapping"},
		{"no such word", least + "schedule: cosinus\n", "", ErrValue,
			`c.yaml:3: schedule: found "cosinus", expected constant, constant_with_warmup, linear, cosine, cosine_with_restarts or polynomial, did you mean "cosine"?`},
		{"no such backend", least + "backend: tpu\n", "", ErrValue, `backend: found "tpu", expected auto, cpu, cuda or metal`},
		{"one beta", least + "betas: [0.9]\n", "", ErrValue, "betas: found a list of 1, expected a list of 2 numbers ≥ 0 and < 1"},
		{"beta 1", least + "betas: [0.9, 1]\n", "", ErrValue, "betas: found 1, expected a list of 2 numbers ≥ 0 and < 1"},
		{"init", least + "adapter: {init_lora_weights: kaiming}\n", "", ErrValue,
			`adapter.init_lora_weights: found "kaiming", expected true, false, gaussian, pissa`},
		{"pattern's value", least + "adapter: {rank_pattern: {q_proj: big}}\n", "", ErrValue,
			`adapter.rank_pattern: found "big", expected a mapping of names to whole numbers`},
		{"pattern's range", least + "adapter: {rank_pattern: {q_proj: 0}}\n", "", ErrValue,
			`adapter.rank_pattern: found 0, expected a mapping of names to whole numbers ≥ 1`},
		{"pattern twice", least + "adapter: {rank_pattern: {q: 1, q: 2}}\n", "", ErrValue, `adapter.rank_pattern: found "q" twice`},
		{"token id", least + "adapter: {trainable_token_indices: [-1]}\n", "", ErrValue, "found -1, expected a list of token ids"},
		{"layer", least + "adapter: {layers_to_transform: -1}\n", "", ErrValue, "adapter.layers_to_transform: found -1"},
		{"memory", least + "memory_limit: 8 gigs\n", "", ErrValue, `memory_limit: found "8 gigs", expected bytes, such as 8GiB`},
		{"negative seed", least + "seed: -1\n", "", ErrValue, "seed: found -1, expected a whole number"},
		{"not YAML", "model: m\n  x: [\n", "", ErrSyntax, "c.yaml:2: not valid YAML: mapping values are not allowed"},
		{"not UTF-8", "model: \xff\n", "", ErrSyntax, "c.yaml: not valid UTF-8"},
		{"two documents", least + "---\nseed: 1\n", "", ErrSyntax, "a second YAML document"},

		{"both", least + "epochs: 1\nsteps: 10\n", "", ErrConflict, "c.yaml:3: epochs: given besides steps"},
		{"neither", least + "epochs: 0\n", "", ErrConflict, "epochs: found 0 epochs and 0 steps"},
		{"two warm-ups", least + "warmup_steps: 1\nwarmup_ratio: 0.1\n", "", ErrConflict, "warmup_ratio: given besides warmup_steps"},
		{"constant with warm-up", least + "schedule: constant\nwarmup_steps: 1\n", "", ErrConflict, "expected constant_with_warmup"},
		{"warm-up too long", least + "steps: 3\nwarmup_steps: 4\n", "", ErrConflict, "warmup_steps: longer than the run"},
		{"cycles without cosine", least + "num_cycles: 2\n", "", ErrConflict, "num_cycles: belongs to the schedules cosine"},
		{"power without polynomial", least + "power: 2\n", "", ErrConflict, "power: belongs to"},
		{"polynomial that rises", least + "schedule: polynomial\nlr_end: 1\n", "", ErrConflict, "lr_end: not below learning_rate"},
		{"two tasks", least + "task: embedding\nadapter: {task_type: CAUSAL_LM}\n", "", ErrConflict, "c.yaml:3: task: given besides another adapter.task_type"},
		{"packed pairs", least + "task: embedding\n", "data.packing=true", ErrConflict, "data.packing: packs texts of language"},
		{"answers of pairs", least + "task: embedding\n", "data.train_on=all", ErrConflict, "data.train_on: belongs to task: language"},
		{"template of pairs", least + "task: embedding\n", "data.chat_template=x", ErrConflict, "data.chat_template: belongs to task: language"},
		{"plain text of pairs", least + "task: embedding\n", "data.format=text", ErrConflict, "data.format: expected a format of rows"},
		{"scale of language", least, "embedding.scale=3", ErrConflict, "embedding.scale: belongs to task: embedding"},
		{"no scale of language", least + "embedding: {scale: 0}\n", "", ErrConflict, "c.yaml:3: embedding.scale: belongs to task: embedding"},
		{"no beta of language", least, "preference.beta=0", ErrConflict, "preference.beta: belongs to task: preference"},
		{"no last evaluation of pictures", "model: m\ntask: diffusion\ndiffusion: {images: d}\neval_at_end: false\n", "", ErrConflict, "c.yaml:4: eval_at_end: belongs to texts"},
		{"no such task", least + "task: embeding\n", "", ErrValue, `expected language, embedding, classification, preference or diffusion, did you mean "embedding"?`},
		{"beta of language", least, "preference.beta=0.2", ErrConflict, "preference.beta: belongs to task: preference"},
		{"beta is 0", least + "task: preference\n", "preference.beta=0", ErrValue, "preference.beta: found 0, expected a number > 0"},
		{"smoothed labels", least + "task: preference\n", "preference.label_smoothing=0.1", ErrUnknownKey, "preference.label_smoothing: unknown key, preference has beta"},
		{"packed preferences", least + "task: preference\n", "data.packing=true", ErrConflict, "data.packing: packs texts of language"},
		{"labels of language", least, "classification.labels=[a, b]", ErrConflict, "classification.labels: belongs to task: classification"},
		{"problem of vectors", least + "task: embedding\n", "classification.problem=regression", ErrConflict, "classification.problem: belongs to task: classification"},
		{"scale of classes", least + "task: classification\n", "embedding.scale=3", ErrConflict, "embedding.scale: belongs to task: embedding"},
		{"classes of plain text", least + "task: classification\n", "data.format=tokens", ErrConflict, "data.format: expected a format of rows"},
		{"documents of classes", least + "task: classification\n", "data.document_separator=x", ErrConflict, "data.document_separator: belongs to plain text"},
		{"packed classes", least + "task: classification\n", "data.packing=true", ErrConflict, "data.packing: packs texts of language"},
		{"a label twice", least + "task: classification\nclassification:\n  labels: [a, b, a]\n", "", ErrValue, `c.yaml:5: classification.labels: found "a" twice, expected names that differ`},
		{"a label without a name", least + "task: classification\n", "classification.labels=[a, '']", ErrValue, `classification.labels: found "", expected text or a list of text`},
		{"one label", least + "task: classification\n", "classification.labels=[a]", ErrConflict, "classification.labels: found one class, expected two or more"},
		{"labels of numbers", least + "task: classification\n", "classification={labels: [a, b], problem: regression}", ErrConflict, "classification.labels: given besides problem: regression"},
		{"no such problem", least + "task: classification\n", "classification.problem=multi_label", ErrValue, `classification.problem: found "multi_label", expected single_label_classification, multi_label_classification or regression, did you mean "multi_label_classification"?`},
		{"the problem's other name", least, "classification.problem_type=regression", ErrUnknownKey, `here it is called "classification.problem"`},
		{"two adapters", least + "init_adapter: dir\nadapter: {r: 4}\n", "", ErrConflict, "c.yaml:3: init_adapter: given besides adapter"},
		{"packing and bucketing", least, "data={packing: true, length_bucketing: true}", ErrConflict, "data.length_bucketing: given besides"},
		{"separator in JSONL", least, "data={format: jsonl, document_separator: x}", ErrConflict, "belongs to plain text"},
		{"evaluation of nothing", least + "eval_steps: 5\n", "", ErrConflict, "eval_steps: given without data.eval"},
		{"patience with nothing", least + "early_stopping: {patience: 2}\n", "", ErrConflict, "given without data.eval"},
		{"metric of nothing", least + "best_metric: eval_accuracy\n", "", ErrConflict, "c.yaml:3: best_metric: given without save_best or early_stopping.patience"},
		{"layers pattern alone", least + "adapter: {layers_pattern: h}\n", "", ErrConflict, "given without layers_to_transform"},
		{"layers and expression", least + "adapter: {layers_to_transform: 1, target_modules: .*q}\n", "", ErrConflict, "expected a list of names there"},

		{"set: no =", least, "adapter.r", ErrSyntax, `--set: found "adapter.r", expected key=value`},
		{"set: a slip", least, "adapter.lora_alfa=3", ErrUnknownKey, `--set: adapter.lora_alfa: unknown key, did you mean "lora_alpha"?`},
		{"set: range", least, "adapter.r=0", ErrValue, "--set: adapter.r: found 0, expected a whole number ≥ 1"},
		{"set: type", least, "adapter.r=x", ErrValue, `--set: adapter.r: found "x", expected a whole number ≥ 1`},
		{"set: not YAML", least, "betas=[1", ErrSyntax, `--set: betas: "[1" is not valid YAML`},
		{"set: too deep", least, "seed.x=1", ErrUnknownKey, "--set: seed.x: unknown key, seed takes a whole number"},
		{"set: entry", least, "adapter.rank_pattern.q=x", ErrValue, `--set: adapter.rank_pattern.q: found "x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sets []string
			if c.set != "" {
				sets = []string{c.set}
			}
			_, err := Parse("c.yaml", []byte(c.yaml), sets...)
			require.Error(t, err)
			assert.ErrorIs(t, err, c.is)
			assert.Contains(t, err.Error(), c.text)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

// FuzzParse: whatever the file and the override hold, there is a valid
// configuration that reads back as itself, or a one-line error.
func FuzzParse(f *testing.F) {
	f.Add(least, "adapter.r=3")
	f.Add(full, "data.train=[a]")
	f.Add(least+"task: classification\nclassification: {labels: [a, no, 1]}", "classification.problem=multi_label_classification")
	f.Add("task: diffusion\nimg_dir: d\ntrain_batch_size: 1\ndata_config: {train_batch_size: 1, control_dir: &a [*a]}\nadam_beta1: 0.8\nbetas: [1]\nadapter: *a\nrank: *a", "task=diffusion")
	f.Add("model: m\npretrained_model_name_or_path: m\ndata_config: {img_dir: d}\nadapter:\nrank: 4\nreport_to: null\nquantize: true", "task=diffusion")
	f.Add("model: &a [*a]\ndata: *a", "log={steps: 2}")
	f.Add("? [a]\n: b\n<<: {model: m}\n!!binary x: y", "a.b.c=&x *x")
	f.Fuzz(func(t *testing.T, src, set string) {
		c, err := Parse("c.yaml", []byte(src), set)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("more than one line: %q", err)
			}
			return
		}
		raw, err := c.YAML()
		require.NoError(t, err)
		again, err := Parse("again.yaml", raw)
		require.NoError(t, err, "%s", raw)
		c.places, again.places, c.idle, again.idle = nil, nil, nil, nil
		require.Equal(t, c, again)
	})
}
