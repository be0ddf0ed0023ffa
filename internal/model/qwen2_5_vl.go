package model

import (
	"encoding/json"
	"fmt"
)

func init() {
	// These are the text models of Qwen2-VL (Wang et al. 2024, arXiv 2409.12191) and
	// Qwen2.5-VL (Bai et al. 2025, arXiv 2502.13923), which are Qwen2. Their rotary positions
	// have three axes; for text all three are equal.
	registerDecoder("qwen2_vl_text", readQwenVLText, "Qwen2VLTextModel")
	registerDecoder("qwen2_5_vl_text", readQwenVLText, "Qwen2_5_VLTextModel")
	registerWrapper("qwen2_vl", readQwen2VL, "Qwen2VLForConditionalGeneration", "Qwen2VLModel")
	registerWrapper("qwen2_5_vl", readQwen25VL, "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLModel")
}

func readQwenVLText(c *Config, f *Fields) Family {
	f.oneAxis()
	m := &qwen2{decoder: f.decoder(c)}
	m.NormEps = float32(f.Float("rms_norm_eps", 1e-5))
	m.RoPE = f.rope(c, m.HeadDim, 1e6)
	m.Windows = f.qwenWindows(c, &m.decoder, 80)
	return m
}

func readQwen2VL(c *Config, f *Fields) Family {
	m := f.wrappedOrFlat(c, "qwen2_vl_text")
	f.tieEither(c)
	return m
}

func readQwen25VL(c *Config, f *Fields) Family {
	vision, picture := f.vision(), f.Int("image_token_id", 151655)
	m, ok := f.wrappedOrFlat(c, "qwen2_5_vl_text").(*qwen2)
	f.tieEither(c)
	if !ok {
		f.Fail("text_config", "another model", "the text model of Qwen2.5-VL")
		return nil
	}
	if vision != nil && vision.Out != c.HiddenSize {
		f.Fail("vision_config: out_hidden_size", vision.Out, fmt.Sprintf("the hidden_size of texts, %d", c.HiddenSize))
	}
	return &qwenVL{qwen2: m, Picture: int32(picture), vision: vision}
}

// oneAxis replaces rotary positions of type mrope by plain ones. mrope only divides a head
// among three axes, so it equals plain RoPE if the three positions are equal.
func (f *Fields) oneAxis() {
	key := f.ropeKey()
	s := f.Object(key)
	if s.String("rope_type", s.String("type", "")) == "mrope" {
		s.values["rope_type"] = json.RawMessage(`"default"`)
		f.set(key, s)
	}
}

// qwenVL is the text model of Qwen2.5-VL. It is [Sighted] if config.json describes a vision
// tower.
type qwenVL struct {
	*qwen2
	Picture int32 // the id of image tokens

	vision *Vision
}
