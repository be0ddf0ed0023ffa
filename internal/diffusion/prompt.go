package diffusion

import (
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Prompt templates of diffusers. The first tokens of each, as many as its drop constant says,
// are dropped from the states.
const (
	qwenTemplate = "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
	qwenDrop     = 34

	kandinskyTemplate = "<|im_start|>system\nYou are a prompt engineer. Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>"
	kandinskyDrop     = 40
)

// Maximum prompt lengths in tokens, without the template.
const (
	qwenLength    = 1024
	t5Length      = 512
	schnellLength = 256 // for FLUX.1 schnell, which takes no guidance embedding
	clipLength    = 77
	chatLength    = 512
)

// captions configures how a pipeline encodes captions.
type captions struct {
	name   string // identifies the method in recipes
	main   reading
	second *reading // encoder of the pooled embedding; nil if there is none
	drop   int      // number of template tokens before the prompt
	shows  *shows   // presentation of images; nil if the encoder reads none
	read   encodeFunc
}

// waysToRead maps pipeline classes to their caption encoding.
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

// notRead maps pipelines with unsupported caption encoding to the reason.
var notRead = map[string]string{
	"Kandinsky5I2IPipeline": "its text encoder sees the picture to begin with, which is not supported",
	"Flux2Pipeline":         "its text encoder, Mistral3, is not supported",
	"QwenImage21Pipeline":   "its text encoder, Qwen3-VL, is not supported",
}

// classOf maps a transformer class to the pipeline that is assumed for a transformer alone.
var classOf = map[string]string{
	"QwenImageTransformer2DModel":   "QwenImagePipeline",
	"FluxTransformer2DModel":        "FluxPipeline",
	"Flux2Transformer2DModel":       "Flux2KleinPipeline",
	"ZImageTransformer2DModel":      "ZImagePipeline",
	"Kandinsky5Transformer3DModel":  "Kandinsky5T2IPipeline",
	"QwenImage21Transformer2DModel": "QwenImage21Pipeline",
}

// captions returns the caption encoding of the pipeline. Errors: ErrPipeline.
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

// transformerFields returns the keys of the transformer's config.json, or none if it cannot
// be read.
func (p *Pipeline) transformerFields() *model.Fields {
	raw, err := p.transformerConfig()
	if err == nil {
		if f, err := model.ParseFields(raw); err == nil {
			return f
		}
	}
	return &model.Fields{}
}

// lastState selects the output of the last layer and its norm.
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

// cleaned normalizes a prompt as Kandinsky 5 does: it unescapes HTML entities twice and
// collapses white space. (diffusers also repairs broken encodings if the Python package ftfy
// is installed.)
func cleaned(text string) string {
	text = html.UnescapeString(html.UnescapeString(text))
	return strings.Trim(spaces.ReplaceAllString(text, " "), " ")
}

// spaces matches the same characters as \s in Python.
var spaces = regexp.MustCompile(`[\s\v\x1c-\x1f\x85\p{Z}]+`)
