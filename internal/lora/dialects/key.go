package dialects

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/lora"
)

// part is the role of a tensor within its module.
type part int

const (
	down      part = iota // A [rank, in]
	up                    // B [out, rank]
	alpha                 // a number
	bias                  // of B [out]
	magnitude             // of DoRA [out]
	parts     = iota
)

// endings are the suffixes that follow the name of a module in a key.
var endings = []struct {
	text string
	part part
}{
	{".lora_A.weight", down}, {".lora_B.weight", up},
	{".lora_A.default.weight", down}, {".lora_B.default.weight", up},
	{".lora_down.weight", down}, {".lora_up.weight", up},
	{".lora.down.weight", down}, {".lora.up.weight", up},
	{".alpha", alpha},
	{".lora_B.bias", bias},
	{".lora_magnitude_vector", magnitude}, {".lora_magnitude_vector.weight", magnitude},
}

// foreign lists endings, or parts of them, of adapters other than LoRA.
var foreign = []struct{ text, what string }{
	{".dora_scale", "DoRA as kohya and LyCORIS scale it"},
	{".lora_mid.weight", "LoRA of convolutions"},
	{".hada_", "LoHa"},
	{".lokr_", "LoKr"},
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
	part   part
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
			return key{text, module, e.part}, nil
		}
	}
	for _, f := range foreign {
		if strings.Contains(text, f.text) {
			return key{}, &lora.Problem{Kind: lora.ErrUnsupported, Key: text, Detail: fmt.Sprintf("it is of %s, expected LoRA", f.what)}
		}
	}
	return key{}, &lora.Problem{Kind: lora.ErrUnmatched, Key: text, Detail: "expected an end such as .lora_A.weight, .lora_down.weight, .lora.down.weight or .alpha"}
}
