package single

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model/original"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// kind is the architecture of a file and the naming scheme of its tensors.
type kind struct {
	dit.Family
	prefix  string
	release *original.Release // naming scheme; nil means that of diffusers
}

// prefixes lists possible prefixes of all names, the longest first.
var prefixes = []string{wholeCheckpoint, "diffusion_model.", ""}

// wholeCheckpoint is the prefix of transformers in files that may contain other parts. The
// names of these begin with one of otherParts.
const wholeCheckpoint = "model.diffusion_model."

var otherParts = []string{"vae.", "first_stage_model.", "text_encoders.", "cond_stage_model.", "conditioner.", "model_ema."}

// others lists files that are often confused with transformers, by a part of a tensor name.
var others = []struct{ part, is string }{
	{"lora_A", "an adapter"}, {"lora_down", "an adapter"}, {".lora.", "an adapter"},
	{"hada_w1", "an adapter"}, {"lokr_w1", "an adapter"},
	{"distilled_guidance_layer.", "Chroma"}, {"control_layers.", "a ControlNet"}, {"control_all_x_embedder", "a ControlNet"},
	{"controlnet", "a ControlNet"}, {"joint_blocks.", "Stable Diffusion 3"}, {"input_blocks.", "a U-Net"}, {"down_blocks.0.attentions", "a U-Net"},
	{"decoder.conv_in", "an autoencoder"}, {"decoder.up", "an autoencoder"}, {"decoder.middle", "an autoencoder"},
	{"encoder.block.0.layer", "a T5 encoder"}, {"text_model.encoder", "a CLIP model"}, {"self_attn.q_proj", "a language model"},
}

// detect returns the kind of a file with these tensor names.
func detect(names []string) (kind, error) {
	has := make(map[string]bool, len(names))
	for _, name := range names {
		has[name] = true
	}
	var found []kind
	var by []string // tensors that identify them
	try := func(k kind, marks []string) {
		if len(marks) > 0 && !slices.ContainsFunc(marks, func(name string) bool { return !has[k.prefix+name] }) {
			found, by = append(found, k), append(by, k.prefix+marks[len(marks)-1])
		}
	}
	for _, prefix := range prefixes {
		for _, f := range dit.Families() {
			if release, ok := original.Of(f.Class); ok {
				try(kind{f, prefix, &release}, f.Original)
			}
			try(kind{f, prefix, nil}, f.Marks)
		}
	}
	switch len(found) {
	case 0:
		return kind{}, unknown(names)
	case 1:
		return found[0], nil
	}
	return kind{}, fmt.Errorf("%w: a mix of forms: it has both %q and %q", ErrFile, by[0], by[1])
}

// unknown returns an error that says what was found instead of a transformer.
func unknown(names []string) error {
	for _, o := range others {
		for _, name := range names {
			if strings.Contains(name, o.part) {
				return fmt.Errorf("%w: tensor %q is one of %s, expected %s", ErrFile, name, o.is, classes())
			}
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: found no tensors", ErrFile)
	}
	return fmt.Errorf("%w: found tensors like %q, expected those of %s", ErrFile, names[0], classes())
}

// classes returns the list of supported classes.
func classes() string {
	var known []string
	for _, f := range dit.Families() {
		known = append(known, f.Class)
	}
	return suggest.Or(known)
}

// key returns the name in the file of a diffusers tensor.
func (k kind) key(name string) string {
	if k.release == nil {
		return k.prefix + name
	}
	module, param := cut(name)
	for _, l := range k.release.Layers {
		for i := range l.Modules {
			block, ok := original.Number(module, l.In+l.Modules[i])
			if !ok {
				continue
			}
			if strings.HasSuffix(l.Name, "_norm") && k.release.Whole {
				param = "scale"
			}
			return k.prefix + l.Numbered(block) + "." + param
		}
	}
	return k.prefix + name
}
