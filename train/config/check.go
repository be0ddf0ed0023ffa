package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

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
	if check := c.Task.definition().check; check != nil {
		if err := check(c); err != nil {
			return err
		}
	}
	for _, rule := range slices.Concat(rules, taskRules()) {
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

const taskType = "adapter.task_type"

// settleTask makes task and adapter.task_type agree if one of them is given.
func (c *Config) settleTask() {
	switch {
	case !c.Given(taskType):
		c.Adapter.TaskType = c.Task.definition().adapter
	case !c.Given("task"):
		for _, d := range definitions {
			if d.adapter != "" && d.adapter == c.Adapter.TaskType {
				c.Task = d.name
				break
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
	if word := wordOf(v); len(k.Words) > 0 && !slices.Contains(k.Words, word) && (k.Path != taskType || word != c.Task.definition().adapter) {
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

// foreign returns an error for a key of another task that does not have its default value. Zero in a Config that
// is not read from a file means that the key is not set.
func (c *Config) foreign(k Key, v reflect.Value) error {
	byDefault := reflect.ValueOf(defaults()).Elem().FieldByIndex(k.index)
	if jobs, ok := v.Interface().(Jobs); v.IsZero() && !c.Given(k.Path) || ok && jobs.Len() == 0 || reflect.DeepEqual(v.Interface(), byDefault.Interface()) {
		return nil
	}
	belongs := "belongs to task: " + k.task
	if k.task == texts {
		belongs = fmt.Sprintf("belongs to texts, expected without it for task: %s", c.Task)
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
	{"task", func(c *Config) bool { return c.Adapter.TaskType != c.Task.definition().adapter },
		"given besides another adapter.task_type, expected one of the two"},
	{"data.chat_template", func(c *Config) bool { return c.Data.ChatTemplate != "" && !c.Task.definition().chats },
		"belongs to task: " + strings.Join(tasksThat(func(d *definition) bool { return d.chats }), " and task: ")},
	{"init_adapter", func(c *Config) bool { return c.InitAdapter != "" && !c.plainAdapter() },
		"given besides adapter settings, which would have no effect: an adapter brings its own (only lora_dropout may differ)"},
	{"adapter.layers_pattern", func(c *Config) bool {
		return len(c.Adapter.LayersPattern) > 0 && len(c.Adapter.LayersToTransform) == 0
	}, "given without layers_to_transform"},
	{"adapter.layers_to_transform", func(c *Config) bool {
		return len(c.Adapter.LayersToTransform) > 0 && c.Adapter.TargetModules.Expr != ""
	}, "given besides one expression in target_modules, expected a list of names there, as PEFT does"},
	{"adapter.lycoris", func(c *Config) bool { return c.Adapter.Lycoris != "none" && !c.Adapter.fitsLycoris() },
		"given besides a key that only LoRA has, expected of this block r, lora_alpha, patterns, decompose_both, decompose_factor, the choice of modules, and init_lora_weights: false"},
	{"adapter.decompose_factor", func(c *Config) bool {
		return c.Adapter.Lycoris != "lokr" && (c.Adapter.DecomposeBoth || c.Adapter.DecomposeFactor != -1) || c.Adapter.DecomposeFactor == 0
	}, "expected -1 or 1 and more, and like decompose_both with lycoris: lokr only"},
	{"data.length_bucketing", func(c *Config) bool { return c.Data.Packing && c.Data.LengthBucketing },
		"given besides data.packing, whose rows are all of one length"},
	{"data.eval_fraction", func(c *Config) bool { return c.Data.EvalFraction > 0 && len(c.Data.Eval) > 0 },
		"given besides data.eval, expected one of the two"},
	{"data.mix", func(c *Config) bool { return len(c.Data.Mix) > 0 && len(c.Data.Mix) != len(c.Data.Train) },
		"expected one weight for each entry of data.train"},
	{"memory_limit", func(c *Config) bool { return c.Memory > 0 && c.MemoryLimit > 0 },
		"given besides memory, which refuses what does not fit too"},
	{"eval_steps", func(c *Config) bool { return c.EvalSteps > 0 && !c.Evaluates() },
		"given without data.eval or data.eval_fraction"},
	{"eval_at_start", func(c *Config) bool { return c.EvalAtStart && !c.Evaluates() },
		"given without data.eval or data.eval_fraction"},
	{"save_best", func(c *Config) bool { return c.SaveBest && !c.Evaluates() },
		"given without data.eval or data.eval_fraction"},
	{"best_metric", func(c *Config) bool {
		return c.BestMetric != defaults().BestMetric && !c.SaveBest && c.EarlyStopping.Patience == 0
	},
		"given without save_best or early_stopping.patience"},
	{"sample_every", func(c *Config) bool { return c.SampleEvery > 0 && !c.Task.definition().samples },
		"belongs to task: " + suggest.Or(tasksThat(func(d *definition) bool { return d.samples }))},
	{"sample_prompts", func(c *Config) bool { return len(c.SamplePrompts) > 0 && c.SampleEvery == 0 },
		"given without sample_every, the number of steps"},
	{"sample_tokens", func(c *Config) bool { return c.SampleTokens != defaults().SampleTokens && c.SampleEvery == 0 },
		"given without sample_every, the number of steps"},
	{"early_stopping.patience", func(c *Config) bool { return c.EarlyStopping.Patience > 0 && !c.Evaluates() },
		"given without data.eval or data.eval_fraction"},
}

// plainAdapter reports whether the adapter block holds nothing but defaults,
// dropout apart.
func (c *Config) plainAdapter() bool {
	given := c.Adapter
	given.LoraDropout = 0
	given.TaskType = defaults().Adapter.TaskType
	return reflect.DeepEqual(given, defaults().Adapter)
}

// fitsLycoris reports whether all settings of LoRA alone have their defaults.
func (a Adapter) fitsLycoris() bool {
	d := defaults().Adapter
	d.R, d.LoraAlpha, d.RankPattern, d.AlphaPattern, d.TaskType = a.R, a.LoraAlpha, a.RankPattern, a.AlphaPattern, a.TaskType
	d.Lycoris, d.DecomposeBoth, d.DecomposeFactor = a.Lycoris, a.DecomposeBoth, a.DecomposeFactor
	d.TargetModules, d.ExcludeModules, d.ModulesToSave = a.TargetModules, a.ExcludeModules, a.ModulesToSave
	d.LayersToTransform, d.LayersPattern = a.LayersToTransform, a.LayersPattern
	if a.InitLoraWeights == "false" {
		d.InitLoraWeights = a.InitLoraWeights
	}
	return reflect.DeepEqual(a, d)
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
