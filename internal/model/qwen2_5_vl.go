package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// This is the text model of Qwen2.5-VL (Bai et al. 2025, arXiv 2502.13923), which is
	// Qwen2. Its rotary positions have three axes; for text all three are equal.
	for name, within := range map[string]string{
		"Qwen2_5_VLForConditionalGeneration": qwenVLText,
		"Qwen2_5_VLModel":                    qwenVLText,
		"Qwen2_5_VLTextModel":                "",
	} {
		modelType := "qwen2_5_vl"
		if within == "" {
			modelType = "qwen2_5_vl_text"
		}
		Register(name, Architecture{ModelType: modelType, Whole: true, Read: func(c *Config, f *Fields) Family {
			return readQwenVL(c, f, within)
		}})
	}
}

// qwenVLText is the name of the text model within the whole model.
const qwenVLText = "language_model"

func readQwenVL(c *Config, f *Fields, within string) Family {
	vision, picture := f.vision(), f.Int("image_token_id", 151655)
	if f.Has("text_config") { // layout of transformers 5; earlier versions store all keys at the top level
		tied, dtype := f.Bool("tie_word_embeddings", false), f.String("dtype", f.String("torch_dtype", ""))
		f.enter("text_config")
		f.shared(c)
		c.TiedEmbeddings = tied || c.TiedEmbeddings
		c.DType = cmp.Or(c.DType, dtype)
	} else {
		f.shared(c)
	}
	f.oneAxis()
	m := &qwen2{decoder: f.decoder(c)}
	m.NormEps = float32(f.Float("rms_norm_eps", 1e-5))
	m.RoPE = f.rope(c, m.HeadDim, 1e6)
	m.Windows = f.qwenWindows(c, &m.decoder, 80)
	if within == "" {
		return m
	}
	if vision != nil && vision.Out != c.HiddenSize {
		f.Fail("vision_config: out_hidden_size", vision.Out, fmt.Sprintf("the hidden_size of texts, %d", c.HiddenSize))
	}
	return &qwenVL{qwen2: m, Picture: int32(picture), vision: vision}
}

// oneAxis replaces rotary positions of type mrope by plain ones. mrope only divides a head
// among three axes, so it equals plain RoPE if the three positions are equal.
func (f *Fields) oneAxis() {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		s := f.Object(key)
		if s.String("rope_type", s.String("type", "")) != "mrope" {
			continue
		}
		delete(s.values, "rope_type")
		delete(s.values, "type")
		f.values[key], _ = json.Marshal(s.values) // never fails: these values were parsed from JSON
	}
}

// qwenVL is the text model of Qwen2.5-VL; its module names are the names of the whole model.
// It is [Sighted] if config.json describes a vision tower.
type qwenVL struct {
	*qwen2
	Picture int32 // the id of image tokens

	vision *Vision
}

// Build implements Family.
func (q *qwenVL) Build(c *Config, b *nn.Builder) Outputs {
	l := q.text(c, b)
	return q.layersAfterEmbeddings(l, l.embed())
}

// text declares the inputs of the part that reads text.
func (q *qwenVL) text(c *Config, b *nn.Builder) *language {
	l := q.language(c, b)
	l.body = l.body.Sub(qwenVLText)
	return l
}

// OtherNames implements [Renamer]. Depending on the version of transformers that wrote a file,
// the decoder is in model, in language_model, or in both.
func (q *qwenVL) OtherNames(name string) []string {
	core := strings.TrimPrefix(strings.TrimPrefix(name, "model."), qwenVLText+".")
	var names []string
	for _, prefix := range []string{"model.", "", "model.language_model.", "language_model.", "language_model.model."} {
		if prefix+core != name {
			names = append(names, prefix+core)
		}
	}
	return names
}
