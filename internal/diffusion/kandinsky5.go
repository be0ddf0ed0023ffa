package diffusion

import (
	"html"
	"regexp"
	"strings"

	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

func init() {
	register(family{
		class: "Kandinsky5Transformer3DModel",
		style: Style{Steps: 50, Guidance: flow.Extrapolate, Scale: 3.5, Negative: new(string), table: true},
		pipelines: []variant{
			{class: "Kandinsky5T2IPipeline", captions: &kandinskyCaptions},
			{class: "Kandinsky5I2IPipeline", unread: "its text encoder sees the picture to begin with, which is not supported"},
		},
	})
}

// kandinskyCaptions are the states of a prompt in a template, and CLIP's pooled embedding.
var kandinskyCaptions = captions{
	name:     "kandinsky5",
	clean:    cleaned,
	template: "<|im_start|>system\nYou are a prompt engineer. Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>",
	drop:     40,
	cut:      cutKandinsky,
	main:     reading{encoder: TextEncoder, tokenizer: Tokenizer, longest: 40 + 512, layers: lastState},
	second:   &reading{encoder: TextEncoder2, tokenizer: Tokenizer2, longest: clipLength},
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

// cutKandinsky truncates a long prompt by characters as diffusers does: it counts the excess
// tokens from the end of the template, and removes as many characters as these decode to.
func cutKandinsky(t *textModel, full, text string) (string, error) {
	ids, err := t.words.Encode(full, true)
	if err != nil || len(ids) <= t.longest {
		return full, err
	}
	removed, err := t.words.Decode(ids[t.longest-2:max(len(ids)-2, t.longest-2)], false)
	if err != nil {
		return "", err
	}
	runes := []rune(full)
	kept := max(0, len(runes)-len([]rune(removed)))
	t.recordTruncation(full, text, string(runes[kept:]), len(ids))
	return string(runes[:kept]), nil
}
