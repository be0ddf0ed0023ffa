package dialects

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/lora"
)

// alpha is the role of a tensor of one number. The other roles are those of the lora package.
const alpha lora.Role = "alpha"

// ending is a suffix that follows the name of a module in a key.
type ending struct {
	text string
	role lora.Role
	set  func(*lora.Config) // see [lora.Ending]
}

// endings lists the known suffixes. Halves of one style are neighbours; PEFT's come first.
var endings = append([]ending{
	{text: ".lora_A.weight", role: lora.RoleA}, {text: ".lora_B.weight", role: lora.RoleB},
	{text: ".lora_A.default.weight", role: lora.RoleA}, {text: ".lora_B.default.weight", role: lora.RoleB},
	{text: ".lora_down.weight", role: lora.RoleA}, {text: ".lora_up.weight", role: lora.RoleB},
	{text: ".lora.down.weight", role: lora.RoleA}, {text: ".lora.up.weight", role: lora.RoleB},
	{text: ".alpha", role: alpha},
}, extras()...)

// extras returns the suffixes of optional tensors, and those of methods other than LoRA. PEFT
// has written vectors with and without .weight at the end.
func extras() (all []ending) {
	for _, e := range lora.KeySuffixes() {
		if e.Role == lora.RoleA || e.Role == lora.RoleB {
			continue
		}
		all = append(all, ending{e.Text, e.Role, e.Set})
		if !strings.HasSuffix(e.Text, ".bias") {
			all = append(all, ending{e.Text + ".weight", e.Role, nil})
		}
	}
	return all
}

// half returns 0 for A and 1 for B: the place in a pair of endings.
func half(r lora.Role) int {
	if r == lora.RoleB {
		return 1
	}
	return 0
}

// foreign lists endings, or parts of them, of adapters other than LoRA.
var foreign = []struct{ text, what string }{
	{".dora_scale", "DoRA as kohya and LyCORIS scale it"},
	{".lora_mid.weight", "LoRA of convolutions"},
	{".oft_", "OFT"},
	{".diff", "a full difference of weights"},
	{".bias.", "a trained bias"},
	{".norm.", "a trained norm"},
}

// prefixes are the strings in front of the name of a module; after a flat one, the dots
// of the name are written as _.
var prefixes = []struct {
	text string
	flat bool
}{
	{"transformer.", false}, {"diffusion_model.", false}, {"model.diffusion_model.", false},
	{"base_model.model.", false}, {"lora_unet_", true}, {"lora_transformer_", true},
	{"lycoris_", true}, {"", false},
}

// elsewhere lists the prefixes of keys of other pipeline components.
var elsewhere = []string{"lora_te", "text_encoder", "text_encoders.", "conditioner.", "cond_stage_model.", "first_stage_model.", "vae.", "unet."}

// key is a key of a file taken apart.
type key struct {
	text   string
	module string // with its prefix
	role   lora.Role
}

// parseKey splits a key into the name of the module and the role of the tensor.
func parseKey(text string) (key, *lora.Problem) {
	for _, p := range elsewhere {
		if strings.HasPrefix(text, p) {
			return key{}, &lora.Problem{Kind: ErrElsewhere, Key: text, Detail: "text encoders are not adapted here; to read the rest, ask for the transformer alone"}
		}
	}
	for _, e := range endings {
		if module, ok := strings.CutSuffix(text, e.text); ok && module != "" {
			return key{text, module, e.role}, nil
		}
	}
	for _, f := range foreign {
		if strings.Contains(text, f.text) {
			return key{}, &lora.Problem{Kind: lora.ErrUnsupported, Key: text, Detail: fmt.Sprintf("it is of %s, expected LoRA", f.what)}
		}
	}
	return key{}, &lora.Problem{Kind: lora.ErrUnmatched, Key: text, Detail: "expected an end such as .lora_A.weight, .lora_down.weight, .lora.down.weight or .alpha"}
}
