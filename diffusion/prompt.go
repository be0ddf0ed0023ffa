package diffusion

import (
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/model"
)

// The texts that prompts are put into, as diffusers has them: what a model reads of the
// states behind them begins after so many tokens.
const (
	qwenTemplate = "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
	qwenDrop     = 34

	kandinskyTemplate = "<|im_start|>system\nYou are a prompt engineer. Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>"
	kandinskyDrop     = 40
)

// Lengths of texts in tokens, without those of templates.
const (
	qwenLength    = 1024
	t5Length      = 512
	schnellLength = 256 // for the FLUX.1 that is not told the guidance
	clipLength    = 77
	chatLength    = 512
)

// captions say how a pipeline reads captions: with which encoders, and how.
type captions struct {
	name   string // of this way, for recipes
	main   reading
	second *reading // of the vector of a whole text, nil where there is none
	drop   int      // tokens of the template that come before the text
	shows  *shows   // how pictures are shown along with a text, nil where none are
	read   encodeFunc
}

// waysToRead are those of pipelines, by their classes.
var waysToRead = map[string]func(p *Pipeline) (captions, error){
	"QwenImagePipeline":         readsQwen,
	"FluxPipeline":              readsFlux,
	"FluxKontextPipeline":       readsFlux,
	"Flux2KleinPipeline":        readsFlux2Klein,
	"ZImagePipeline":            readsZImage,
	"Kandinsky5T2IPipeline":     readsKandinsky,
	"QwenImageEditPipeline":     readsEdit("qwen-image-edit"),
	"QwenImageEditPlusPipeline": readsEdit("qwen-image-edit-plus"),
}

// notRead are pipelines whose captions cannot be encoded here, and why.
var notRead = map[string]string{
	"Kandinsky5I2IPipeline": "its text encoder sees the picture to begin with, which is not supported",
	"Flux2Pipeline":         "its text encoder, Mistral3, is not supported",
	"QwenImage21Pipeline":   "its text encoder, Qwen3-VL, is not supported",
}

// classOf is the pipeline that a transformer alone is taken for.
var classOf = map[string]string{
	"QwenImageTransformer2DModel":   "QwenImagePipeline",
	"FluxTransformer2DModel":        "FluxPipeline",
	"Flux2Transformer2DModel":       "Flux2KleinPipeline",
	"ZImageTransformer2DModel":      "ZImagePipeline",
	"Kandinsky5Transformer3DModel":  "Kandinsky5T2IPipeline",
	"QwenImage21Transformer2DModel": "QwenImage21Pipeline",
}

// captions says how the pipeline reads captions. Errors: ErrPipeline.
func (p *Pipeline) captions() (captions, error) {
	class := p.Class
	if class == "" {
		class = classOf[p.transformerFields().String("_class_name", "")]
	}
	if read, ok := waysToRead[class]; ok {
		return read(p)
	}
	if why, ok := notRead[class]; ok {
		return captions{}, fmt.Errorf("diffusion: %w: captions of a %s: %s; make the cache with the Python trainer, or train from one that is there", ErrPipeline, class, why)
	}
	known := slices.Sorted(maps.Keys(waysToRead))
	return captions{}, fmt.Errorf("diffusion: %w: captions of a %s%s; supported: %s", ErrPipeline, class, suggest.DidYouMean(class, known), strings.Join(known, ", "))
}

// transformerFields are the keys of the transformer's config.json, none where it cannot be read.
func (p *Pipeline) transformerFields() *model.Fields {
	raw, err := p.transformerConfig()
	if err == nil {
		if f, err := model.ParseFields(raw); err == nil {
			return f
		}
	}
	return &model.Fields{}
}

// lastState is what is behind the last layer and its norm.
var lastState = []int{-1}

func readsQwen(*Pipeline) (captions, error) {
	return captions{
		name: "qwen-image",
		main: reading{TextEncoder, Tokenizer, qwenLength + qwenDrop, lastState, false},
		drop: qwenDrop, read: (*Encoder).qwen,
	}, nil
}

func readsFlux(p *Pipeline) (captions, error) {
	length := t5Length
	if !p.transformerFields().Bool("guidance_embeds", false) {
		length = schnellLength
	}
	return captions{
		name:   "flux",
		main:   reading{TextEncoder2, Tokenizer2, length, lastState, false},
		second: &reading{TextEncoder, Tokenizer, clipLength, nil, false},
		read:   (*Encoder).flux,
	}, nil
}

func readsFlux2Klein(*Pipeline) (captions, error) {
	return captions{
		name: "flux2-klein",
		main: reading{TextEncoder, Tokenizer, chatLength, []int{9, 18, 27}, true},
		read: (*Encoder).klein,
	}, nil
}

func readsZImage(*Pipeline) (captions, error) {
	return captions{
		name: "z-image",
		main: reading{TextEncoder, Tokenizer, chatLength, []int{-2}, true},
		read: (*Encoder).zImage,
	}, nil
}

func readsKandinsky(*Pipeline) (captions, error) {
	return captions{
		name:   "kandinsky5",
		main:   reading{TextEncoder, Tokenizer, t5Length + kandinskyDrop, lastState, false},
		second: &reading{TextEncoder2, Tokenizer2, clipLength, nil, false},
		drop:   kandinskyDrop, read: (*Encoder).kandinsky,
	}, nil
}

// cleaned is a prompt as Kandinsky 5 takes it: entities of HTML unescaped twice, and
// stretches of white space one blank. (diffusers repairs broken encodings too, where the
// Python package ftfy is there.)
func cleaned(text string) string {
	text = html.UnescapeString(html.UnescapeString(text))
	return strings.Trim(spaces.ReplaceAllString(text, " "), " ")
}

// spaces are what \s means in Python.
var spaces = regexp.MustCompile(`[\s\v\x1c-\x1f\x85\p{Z}]+`)
