package lora

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// strangers reports the unmatched and the missing tensors. For a limited number of
// unmatched tensors it adds an explanation.
func (r *Report) strangers(strange []string, missing []TensorSpec) {
	wanted := make([]string, len(missing))
	for i, s := range missing {
		wanted[i] = s.Key
	}
	// To find the nearest of many names costs; a reader looks at a few.
	const explained = 8
	vision := visionKeys(strange, r.specs)
	for i, key := range strange {
		detail := ""
		if slices.Contains(vision, key) {
			detail = fmt.Sprintf("it adapts the vision part, and only the text model is read; it is one of %s", list(vision))
		} else if i < explained {
			detail = explain(key, wanted, r.specs)
		}
		r.add(ErrUnmatched, key, "%s", detail)
	}
	for i, key := range wanted {
		detail := ""
		if i < explained {
			if near := suggest.Nearest(key, strange, 1); len(near) > 0 {
				detail = fmt.Sprintf("the nearest in the file is %s", near[0])
			}
		}
		r.add(ErrMissing, key, "%s", detail)
	}
}

// visionKeys returns the keys that are of a vision part, if the model has none.
func visionKeys(strange []string, specs []TensorSpec) (keys []string) {
	if slices.ContainsFunc(specs, func(s TensorSpec) bool { return visionPart.MatchString(s.Key) }) {
		return nil
	}
	for _, key := range strange {
		if visionPart.MatchString(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

var (
	visionPart = regexp.MustCompile(`^` + VisionModules + `$`)
	// infix matches an adapter's name within a key; PEFT has it there in memory.
	infix = regexp.MustCompile(`\.(lora_[AB]|lora_embedding_[AB]|lora_magnitude_vector|modules_to_save|trainable_tokens_delta)\.([^.]+)(\.weight|\.bias|)$`)
	tail  = regexp.MustCompile(`\.(lora_[AB]\.(weight|bias)|lora_embedding_[AB]|lora_magnitude_vector)$`)
)

// dialects are the ways in which other tools name tensors.
var dialects = []struct{ part, tool string }{
	{"lora_unet_", "kohya"},
	{"lora_te", "kohya"},
	{".lora_down.", "kohya or an old diffusers"},
	{".lora_up.", "kohya or an old diffusers"},
	{".lora.down.", "diffusers"},
	{".lora.up.", "diffusers"},
	{"lora_linear_layer", "an old diffusers"},
	{"diffusion_model.", "ComfyUI"},
	{".lora_a", "MLX or llama.cpp"},
	{".lora_b", "MLX or llama.cpp"},
	{".lora_E", "AdaLoRA"},
	{"vera_lambda", "VeRA"},
	{".ia3_l", "IA3"},
}

// explain returns the likely meaning of a tensor with an unknown key.
func explain(key string, wanted []string, specs []TensorSpec) string {
	if m := infix.FindStringSubmatchIndex(key); m != nil {
		name := key[m[4]:m[5]]
		without := key[:m[4]-1] + key[m[5]:]
		if strings.Contains(key, ".modules_to_save.") {
			without = strings.Replace(key, ".modules_to_save."+name, "", 1)
		}
		if name != "weight" && name != "bias" && known(without, specs) {
			return fmt.Sprintf("the name %q of the adapter is in the key, expected %s", name, without)
		}
	}
	for _, d := range dialects {
		if strings.Contains(key, d.part) {
			return fmt.Sprintf("this is how %s names tensors, expected keys such as %s", d.tool, example(wanted, specs))
		}
	}
	// The module under another prefix: compare from the end.
	for _, s := range specs {
		short := strings.TrimPrefix(s.Key, keyPrefix)
		for {
			if rest, ok := strings.CutSuffix(key, short); ok && (rest == "" || strings.HasSuffix(rest, ".")) {
				prefix := strings.TrimSuffix(s.Key, short)
				return fmt.Sprintf("its prefix is %q, expected %q as in %s", rest, prefix, s.Key)
			}
			_, after, ok := strings.Cut(short, ".")
			// The rest of the name must still distinguish the layers.
			if !ok || strings.Count(after, ".") < 3 {
				break
			}
			short = after
		}
	}
	if loc := tail.FindStringIndex(key); loc != nil && strings.HasPrefix(key, keyPrefix) {
		module := key[len(keyPrefix):loc[0]]
		return fmt.Sprintf("%q is not targeted by the configuration%s", module, suggest.DidYouMean(key, wanted))
	}
	if hint := suggest.DidYouMean(key, wanted); hint != "" {
		return "not expected" + hint
	}
	return "expected keys such as " + example(wanted, specs)
}

func known(key string, specs []TensorSpec) bool {
	for _, s := range specs {
		if s.Key == key {
			return true
		}
	}
	return false
}

func example(wanted []string, specs []TensorSpec) string {
	if len(wanted) > 0 {
		return wanted[0]
	}
	if len(specs) > 0 {
		return specs[0].Key
	}
	return keyPrefix + "….lora_A.weight"
}
