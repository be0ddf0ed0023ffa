package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/train/schedule"
)

// Validate checks every value against the table, then the keys against each other, and resolves epochs and steps: a
// run with steps has 0 epochs. It returns the first problem in the order of the reference. If there are jobs, each of
// them is checked.
func (c *Config) Validate() error {
	if c.Jobs.Len() > 0 {
		c.settleSteps()
		return c.validateJobs()
	}
	v := reflect.ValueOf(c).Elem()
	c.settleTask()
	for _, k := range table() {
		if k.Section {
			continue
		}
		if err := c.check(k, v.FieldByIndex(k.index)); err != nil {
			return err
		}
	}
	c.settleSteps()
	labels := c.Classification.Labels
	for i, name := range labels {
		if slices.Contains(labels[:i], name) {
			return &Error{c.places["classification.labels"], "classification.labels", fmt.Sprintf("found %q twice, expected names that differ", shorten(name)), ErrValue}
		}
	}
	for _, rule := range rules {
		if rule.broken(c) {
			return &Error{c.places[rule.key], rule.key, rule.problem, ErrConflict}
		}
	}
	return nil
}

// settleSteps sets epochs to 0 for a run with steps.
func (c *Config) settleSteps() {
	if c.Steps > 0 && !c.Given("epochs") {
		c.Epochs = 0
	}
}

// taskTypes are PEFT's names of the tasks; it has none for diffusion.
var taskTypes = map[Task]string{Language: "CAUSAL_LM", Embed: "FEATURE_EXTRACTION", Classify: "SEQ_CLS", Prefer: "CAUSAL_LM"}

const taskType = "adapter.task_type"

// settleTask makes task and adapter.task_type agree if one of them is given.
func (c *Config) settleTask() {
	switch {
	case !c.Given(taskType):
		c.Adapter.TaskType = taskTypes[c.Task]
	case !c.Given("task"):
		for task, name := range taskTypes {
			if name == c.Adapter.TaskType && name != "" && task != Prefer { // which has no name of its own
				c.Task = task
			}
		}
	}
}

// check compares one value with its key.
func (c *Config) check(k Key, v reflect.Value) error {
	if !k.of(c.Task) {
		return c.foreign(k, v)
	}
	if k.Required && v.IsZero() {
		return &Error{c.places[k.Path], k.Path, "missing, expected: " + k.Doc, ErrMissing}
	}
	fail := func(found, hint string) error {
		return &Error{c.places[k.Path], k.Path, fmt.Sprintf("found %s, expected %s%s", found, k.expects(), hint), ErrValue}
	}
	if k.Filled && v.IsZero() {
		return fail("nothing", ": it may be left out, but not be empty")
	}
	if word := wordOf(v); len(k.Words) > 0 && !slices.Contains(k.Words, word) && (k.Path != taskType || word != taskTypes[c.Task]) {
		return fail(strconv.Quote(shorten(word)), suggest.DidYouMean(word, k.Words))
	}
	if list, ok := v.Interface().(Strings); ok && slices.Contains(list, "") {
		return fail(`""`, "")
	}
	if k.Range != "" {
		bounds := parseInterval(k.Range)
		for _, x := range numbersOf(v) {
			if !bounds.contains(x) {
				found := number(x)
				if v.Kind() == reflect.Int { // which a float64 may not hold
					found = strconv.FormatInt(v.Int(), 10)
				}
				return fail(found, "")
			}
		}
	}
	return nil
}

// foreign returns an error for a key of another task that does not have its default value.
func (c *Config) foreign(k Key, v reflect.Value) error {
	byDefault := reflect.ValueOf(Default()).Elem().FieldByIndex(k.index)
	if jobs, ok := v.Interface().(Jobs); v.IsZero() || ok && jobs.Len() == 0 || reflect.DeepEqual(v.Interface(), byDefault.Interface()) {
		return nil
	}
	belongs := "belongs to task: diffusion"
	if k.task != string(Diffuse) {
		belongs = "belongs to texts, expected without it for task: diffusion"
	}
	return &Error{c.places[k.Path], k.Path, belongs, ErrConflict}
}

// wordOf returns the text of an enumerated value.
func wordOf(v reflect.Value) string {
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return s.String()
	}
	return v.String()
}

// numbersOf returns the numbers of a value that are subject to its range.
func numbersOf(v reflect.Value) []float64 {
	if n, ok := v.Interface().(numbers); ok {
		return n.numbers()
	}
	switch v.Kind() {
	case reflect.Int:
		return []float64{float64(v.Int())}
	case reflect.Float64:
		return []float64{v.Float()}
	case reflect.Array:
		var all []float64
		for i := range v.Len() {
			all = append(all, v.Index(i).Float())
		}
		return all
	}
	return nil
}

// A rule names keys that contradict each other.
type rule struct {
	key     string
	broken  func(*Config) bool
	problem string
}

var rules = []rule{
	{"epochs", func(c *Config) bool { return c.Steps > 0 && c.Epochs > 0 },
		"given besides steps, expected one of the two"},
	{"epochs", func(c *Config) bool { return c.Steps == 0 && c.Epochs == 0 },
		"found 0 epochs and 0 steps, expected one of them above 0"},
	{"warmup_ratio", func(c *Config) bool { return c.WarmupRatio > 0 && c.WarmupSteps > 0 },
		"given besides warmup_steps, expected one of the two"},
	{"schedule", func(c *Config) bool {
		return c.Schedule == schedule.Constant && (c.WarmupRatio > 0 || c.WarmupSteps > 0)
	},
		"constant has no warm-up, expected constant_with_warmup, or neither warmup_steps nor warmup_ratio"},
	{"warmup_steps", func(c *Config) bool { return c.Steps > 0 && c.WarmupSteps > c.Steps },
		"longer than the run, expected at most steps"},
	{"num_cycles", func(c *Config) bool { return c.NumCycles != 0 && !strings.HasPrefix(string(c.Schedule), "cosine") },
		"belongs to the schedules cosine and cosine_with_restarts"},
	{"power", func(c *Config) bool { return c.Power != 1 && c.Schedule != schedule.Polynomial },
		"belongs to the schedule polynomial"},
	{"lr_end", func(c *Config) bool { return c.LREnd != 1e-7 && c.Schedule != schedule.Polynomial },
		"belongs to the schedule polynomial"},
	{"lr_end", func(c *Config) bool { return c.Schedule == schedule.Polynomial && c.LREnd >= c.LearningRate },
		"not below learning_rate, expected a polynomial that falls"},
	{"diffusion.logit_mean", func(c *Config) bool { return c.Diffusion.LogitMean != 0 && c.Diffusion.Timesteps != "logit_normal" },
		"belongs to timesteps: logit_normal"},
	{"diffusion.logit_std", func(c *Config) bool { return c.Diffusion.LogitStd != 1 && c.Diffusion.Timesteps != "logit_normal" },
		"belongs to timesteps: logit_normal"},
	{"diffusion.mode_scale", func(c *Config) bool { return c.Diffusion.ModeScale != 1.29 && c.Diffusion.Timesteps != "mode" },
		"belongs to timesteps: mode"},
	{"diffusion.shift", func(c *Config) bool { return c.Diffusion.Shift != 3 && c.Diffusion.Timesteps != "shift" },
		"belongs to timesteps: shift"},
	{"diffusion.sigmoid_scale", func(c *Config) bool {
		return c.Diffusion.SigmoidScale != 1 && c.Diffusion.Timesteps != "sigmoid" && !strings.HasSuffix(c.Diffusion.Timesteps, "shift")
	}, "belongs to timesteps: sigmoid, shift, flux_shift and qwen_shift"},
	{"diffusion.sample_prompts", func(c *Config) bool {
		return len(c.Diffusion.SamplePrompts) > 0 && c.Diffusion.SampleEvery == 0 && c.Diffusion.DrawSamples
	}, "given without sample_every, the number of steps"},
	{"task", func(c *Config) bool { return c.Adapter.TaskType != taskTypes[c.Task] },
		"given besides another adapter.task_type, expected one of the two"},
	{"embedding.scale", func(c *Config) bool { return c.Embedding.Scale != 20 && c.Task != Embed },
		"belongs to task: embedding"},
	{"preference.beta", func(c *Config) bool { return c.Preference.Beta != 0.1 && c.Task != Prefer },
		"belongs to task: preference"},
	{"classification.labels", func(c *Config) bool { return len(c.Classification.Labels) > 0 && c.Task != Classify },
		"belongs to task: classification"},
	{"classification.problem", func(c *Config) bool { return c.Classification.Problem != data.SingleLabel && c.Task != Classify },
		"belongs to task: classification"},
	{"classification.labels", func(c *Config) bool {
		return len(c.Classification.Labels) > 0 && c.Classification.Problem == data.Regression
	}, "given besides problem: regression, which has no classes"},
	{"classification.labels", func(c *Config) bool {
		return len(c.Classification.Labels) == 1 && c.Classification.Problem == data.SingleLabel
	}, "found one class, expected two or more (of one class a row is or is not with problem: multi_label_classification)"},
	{"data.packing", func(c *Config) bool { return c.Data.Packing && c.Task != Language },
		"packs texts of language (task: language) alone"},
	{"data.train_on", func(c *Config) bool { return c.Data.TrainOn != "answer" && c.Task != Language },
		"belongs to task: language"},
	{"data.chat_template", func(c *Config) bool { return c.Data.ChatTemplate != "" && c.Task != Language && c.Task != Prefer },
		"belongs to task: language and task: preference"},
	{"data.format", func(c *Config) bool {
		return c.Task != Language && c.Data.Format != "auto" && c.Data.Format != "jsonl"
	}, "expected jsonl, the format of rows that are read whole"},
	{"init_adapter", func(c *Config) bool { return c.InitAdapter != "" && !c.plainAdapter() },
		"given besides adapter settings, which would have no effect: an adapter brings its own (only lora_dropout may differ)"},
	{"adapter.layers_pattern", func(c *Config) bool {
		return len(c.Adapter.LayersPattern) > 0 && len(c.Adapter.LayersToTransform) == 0
	}, "given without layers_to_transform"},
	{"adapter.layers_to_transform", func(c *Config) bool {
		return len(c.Adapter.LayersToTransform) > 0 && c.Adapter.TargetModules.Expr != ""
	}, "given besides one expression in target_modules, expected a list of names there, as PEFT does"},
	{"data.length_bucketing", func(c *Config) bool { return c.Data.Packing && c.Data.LengthBucketing },
		"given besides data.packing, whose rows are all of one length"},
	{"data.document_separator", func(c *Config) bool {
		return c.Data.DocumentSeparator != "" && (c.Task != Language || c.Data.Format == data.FormatJSONL || c.Data.Format == data.FormatTokens)
	}, "belongs to plain text"},
	{"memory_limit", func(c *Config) bool { return c.Memory > 0 && c.MemoryLimit > 0 },
		"given besides memory, which refuses what does not fit too"},
	{"eval_steps", func(c *Config) bool { return c.EvalSteps > 0 && len(c.Data.Eval) == 0 },
		"given without data.eval"},
	{"eval_at_start", func(c *Config) bool { return c.EvalAtStart && len(c.Data.Eval) == 0 },
		"given without data.eval"},
	{"early_stopping.patience", func(c *Config) bool { return c.EarlyStopping.Patience > 0 && len(c.Data.Eval) == 0 },
		"given without data.eval"},
}

// plainAdapter reports whether the adapter block holds nothing but defaults,
// dropout apart.
func (c *Config) plainAdapter() bool {
	given := c.Adapter
	given.LoraDropout = 0
	given.TaskType = Default().Adapter.TaskType
	return reflect.DeepEqual(given, Default().Adapter)
}

// interval is a range of numbers; its ends belong to it or not.
type interval struct {
	low, high         float64
	openLow, openHigh bool
}

// parseInterval reads the notation of the range tags, such as [0,1).
func parseInterval(s string) interval {
	low, high, _ := strings.Cut(s[1:len(s)-1], ",")
	var iv interval
	iv.low, _ = strconv.ParseFloat(low, 64)
	iv.high, _ = strconv.ParseFloat(high, 64)
	iv.openLow, iv.openHigh = s[0] == '(', s[len(s)-1] == ')'
	return iv
}

func (iv interval) contains(x float64) bool {
	return (x > iv.low || x == iv.low && !iv.openLow) && (x < iv.high || x == iv.high && !iv.openHigh)
}

// number writes a number as people do: whole ones with all their digits.
func number(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// String returns the interval in words: "≥ 0 and < 1".
func (iv interval) String() string {
	text := "≥ " + number(iv.low)
	if iv.openLow {
		text = "> " + number(iv.low)
	}
	switch high := number(iv.high); {
	case high == "+Inf":
		return text
	case iv.openHigh:
		return text + " and < " + high
	default:
		return text + " and ≤ " + high
	}
}
