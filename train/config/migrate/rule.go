package migrate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/train/config"
)

// rule describes the conversion of a key.
type rule struct {
	to    string         // our key with the same meaning, unit and values
	words map[string]any // values of theirs, and ours; without it values are equal
	why   string         // reason for dropping the key, unless it is off
	apply func(c *conversion, v any)
	// unused marks a key that has no effect on the result, such as the number of workers.
	unused bool
}

func to(key string) rule                         { return rule{to: key} }
func words(key string, w map[string]any) rule    { return rule{to: key, words: w} }
func drop(why string) rule                       { return rule{why: why} }
func with(apply func(c *conversion, v any)) rule { return rule{apply: apply} }

// unused are keys that have no effect here, of any trainer.
var unused = rule{unused: true}

// conversion is a file that is being converted.
type conversion struct {
	source  *source
	in      map[string]any // by dotted keys of the trainer
	out     map[string]any // by our keys
	done    map[string]bool
	dropped []Note
	todo    []Note
	unused  []string
}

// convert converts one key.
func (c *conversion) convert(key string) {
	v := c.in[key]
	if v == nil || c.done[key] {
		return
	}
	r, known := c.source.keys[key]
	switch {
	case !known && isUnused(key), r.unused:
		c.unused = append(c.unused, key)
	case !known:
		c.drop(key, "lorafuse has no such setting")
	case r.apply != nil:
		r.apply(c, v)
	case r.to == "":
		if !isOff(v) {
			c.drop(key, r.why)
		}
	case r.words != nil:
		ours, ok := r.words[strings.ToLower(fmt.Sprint(v))]
		if !ok {
			c.drop(key, fmt.Sprintf("found %v, expected one of %s", v, strings.Join(slices.Sorted(maps.Keys(r.words)), ", ")))
			return
		}
		if ours != nil {
			c.out[r.to] = ours
		}
	default:
		c.set(r.to, v)
	}
}

// set sets one of our keys. Numbers in quotes become numbers, as Python reads 1e-4.
func (c *conversion) set(key string, v any) {
	if s, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			v = f
		}
	}
	c.out[key] = v
}

func (c *conversion) drop(key, why string) {
	c.dropped = append(c.dropped, Note{key, shorten(why)})
}
func (c *conversion) do(key, why string) { c.todo = append(c.todo, Note{key, shorten(why)}) }

// shorten cuts a long reason, which may quote a value of the file.
func shorten(why string) string {
	const limit = 300
	if r := []rune(why); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return why
}

// isOff reports whether a value switches a feature off.
func isOff(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == "" || strings.EqualFold(v, "none") || strings.EqualFold(v, "no") || strings.EqualFold(v, "false")
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	n, ok := number(v)
	return ok && n == 0
}

// number returns a value as a number.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case string:
		f, err := strconv.ParseFloat(v, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return 0, false
}

// num returns a key of the file as a number, or fallback.
func (c *conversion) num(key string, fallback float64) float64 {
	if n, ok := number(c.in[key]); ok {
		return n
	}
	return fallback
}

// str returns a key of the file as text, or "".
func (c *conversion) str(key string) string {
	if v := c.in[key]; v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// isTrue reports whether a key of the file is true.
func (c *conversion) isTrue(key string) bool {
	v, ok := c.in[key]
	return ok && strings.EqualFold(fmt.Sprint(v), "true")
}

// list returns a value as a list of texts; a text is divided at commas.
func list(v any) (all []string) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			all = append(all, fmt.Sprint(x))
		}
	case string:
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}

// mappings returns a value as a list of mappings.
func mappings(v any) (all []map[string]any) {
	items, ok := v.([]any)
	if !ok {
		items = []any{v}
	}
	for _, x := range items {
		if m, ok := x.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// isUnused reports whether a key cannot change the result: logs, trackers, workers, caches and kernels.
func isUnused(key string) bool {
	key = key[strings.LastIndexByte(key, '.')+1:]
	if config.IsIdle(key) {
		return true
	}
	for _, prefix := range []string{"hub_", "dataloader_", "ddp_", "fsdp", "deepspeed", "logging_", "xformers", "liger_"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return slices.Contains([]string{
		"overwrite_output_dir", "do_train", "debug", "strict", "tokenizer_type", "model_type", "sdpa", "low_vram", "device", "dataset_prepared_path", "save_safetensors",
		"highvram", "lowram", "sdpa_attention", "mem_eff_attn", "auto_resume_from_checkpoints", "push_to_hub", "push_checkpoints_to_hub", "performance_log_every",
	}, key)
}

// schedules are names of learning rate schedules in transformers and diffusers.
var schedules = map[string]any{
	"linear": "linear", "cosine": "cosine", "constant": "constant", "constant_with_warmup": "constant_with_warmup",
	"cosine_with_restarts": "cosine_with_restarts", "polynomial": "polynomial",
}

// optimizers are names of AdamW in the trainers. Variants differ in speed and memory only.
var optimizers = map[string]any{
	"adamw": "adamw", "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw_apex_fused": "adamw", "paged_adamw": "adamw", "paged_adamw_32bit": "adamw", "adamw_torch_npu_fused": "adamw",
	"adamw8bit": "adamw_8bit", "adamw_8bit": "adamw_8bit", "adamw_bnb_8bit": "adamw_8bit", "paged_adamw_8bit": "adamw_8bit", "pagedadamw8bit": "adamw_8bit", "bnb-adamw8bit": "adamw_8bit",
}

// warm removes the warm-up of a constant schedule, which transformers and diffusers ignore too.
func (c *conversion) warm() {
	if c.out["schedule"] != "constant" {
		if steps, _ := number(c.out["warmup_steps"]); steps > 0 {
			delete(c.out, "warmup_ratio")
		}
		return
	}
	for _, key := range []string{"warmup_steps", "warmup_ratio"} {
		if !isOff(c.out[key]) {
			c.drop(key, "a constant schedule has no warm-up, there neither")
		}
		delete(c.out, key)
	}
}

// beta sets element i of betas.
func beta(i int) rule {
	return with(func(c *conversion, v any) {
		betas, ok := c.out["betas"].([]any)
		if !ok {
			betas = []any{0.9, 0.999}
		}
		betas = slices.Clone(betas)
		betas[i] = v
		c.out["betas"] = betas
	})
}
