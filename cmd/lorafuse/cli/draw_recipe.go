package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/diffusion"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// drawn is what `draw --json` prints.
type drawn struct {
	Output string `json:"output"`
	Width  int    `json:"width"`  // of the file
	Height int    `json:"height"` //
	recipe
	// Truncated lists the prompts that a text encoder did not read whole.
	Truncated []truncatedPrompt `json:"truncated,omitempty"`
	Seconds   float64           `json:"seconds"`
}

// truncatedPrompt is a prompt, or negative prompt, that is longer than an encoder reads.
type truncatedPrompt struct {
	Prompt string `json:"prompt"`
	diffusion.Truncation
}

// recipe is what pictures are drawn by: the same once more gives the same pictures. The
// file has it too.
type recipe struct {
	Model       string `json:"model,omitempty"`
	Transformer string `json:"transformer,omitempty"`
	Quantize    string `json:"quantize,omitempty"`
	// Size is that of a picture, such as 768x512.
	Size     string         `json:"size"`
	Steps    int            `json:"steps"`
	Guidance float64        `json:"guidance"`
	Negative string         `json:"negative,omitempty"` // or the file of its embedding
	Controls []string       `json:"controls,omitempty"`
	Weight   float64        `json:"adapter_weight,omitempty"`
	Pictures []drawnPicture `json:"pictures"`
}

// drawnPicture is one of a grid.
type drawnPicture struct {
	Prompt  string `json:"prompt"` // or the file of its embedding
	Seed    uint64 `json:"seed"`
	Adapter string `json:"adapter,omitempty"`
	Row     int    `json:"row"`
	Column  int    `json:"column"`
}

// recipe is that of the flags and the model, without pictures.
func (d *drawing) recipe() recipe {
	f := d.flags
	r := recipe{
		Model: f.model, Transformer: f.transformer.File, Size: fmt.Sprintf("%dx%d", d.what.Width*d.canvas.Pixels, d.what.Height*d.canvas.Pixels),
		Steps: d.what.Steps, Controls: f.controls, Guidance: d.guidance(),
	}
	if f.given("quantize") {
		r.Quantize = fmt.Sprint(f.quantize)
	}
	if f.adapter != "" {
		r.Weight = f.weight
	}
	switch {
	case d.what.Negative == nil:
	case f.negativeEmbedding != "":
		r.Negative = f.negativeEmbedding
	case f.given("negative"):
		r.Negative = f.negative
	default:
		r.Negative = *d.style.Negative
	}
	return r
}

// guidance is what the transformer is told, or how far it is led away from the negative
// prompt.
func (d *drawing) guidance() float64 {
	switch {
	case d.flags.given("guidance"):
		return d.flags.guidance
	case d.space.Guidance:
		return d.style.Told
	default:
		return d.style.Scale
	}
}

// texts are what the file says of itself: how its first picture was drawn, as other tools
// write and read it, and all that there is to say. Files are told by their names alone.
func (r *drawn) texts() []diffusion.Text {
	told := r.recipe
	told.Model, told.Transformer = fileName(told.Model), fileName(told.Transformer)
	if len(told.Controls) > 0 {
		told.Controls = mapped(told.Controls, fileName)
	}
	told.Pictures = mapped(told.Pictures, func(p drawnPicture) drawnPicture {
		p.Adapter = fileName(p.Adapter)
		if filepath.Ext(p.Prompt) == ".safetensors" {
			p.Prompt = fileName(p.Prompt)
		}
		return p
	})
	all, err := json.Marshal(told)
	if err != nil {
		return nil
	}
	return []diffusion.Text{{Key: "parameters", Value: told.parameters()}, {Key: "lorafuse", Value: string(all)}}
}

// fileName is the name of what lies at path, and path itself where nothing does.
func fileName(path string) string {
	if _, err := os.Stat(path); err != nil {
		return path
	}
	return filepath.Base(path)
}

func mapped[T any](all []T, f func(T) T) []T {
	out := make([]T, len(all))
	for i, x := range all {
		out[i] = f(x)
	}
	return out
}

// parameters is a recipe as AUTOMATIC1111's web UI writes it: the prompt, the negative
// one, and a line of settings.
func (r recipe) parameters() string {
	first := r.Pictures[0]
	lines := []string{first.Prompt}
	if strings.TrimSpace(r.Negative) != "" {
		lines = append(lines, "Negative prompt: "+r.Negative)
	}
	settings := []string{
		"Steps: " + strconv.Itoa(r.Steps), "Sampler: Euler", "CFG scale: " + strconv.FormatFloat(r.Guidance, 'g', -1, 64),
		"Seed: " + strconv.FormatUint(first.Seed, 10), "Size: " + r.Size,
	}
	name := r.Model
	if r.Transformer != "" {
		name = r.Transformer
	}
	settings = append(settings, "Model: "+settingValue(name))
	if r.Weight != 0 {
		last := r.Pictures[len(r.Pictures)-1] // drawn with it, also where the first is not
		settings = append(settings, "Adapter: "+settingValue(last.Adapter), "Adapter weight: "+strconv.FormatFloat(r.Weight, 'g', -1, 64))
	}
	settings = append(settings, "Version: lorafuse "+readVersion().Version)
	return strings.Join(append(lines, strings.Join(settings, ", ")), "\n")
}

// settingValue is a value of a line of settings, in quotes where others would read it wrongly.
func settingValue(value string) string {
	if strings.ContainsAny(value, ",:\n\"") {
		return strconv.Quote(value)
	}
	return value
}

// checkOutput looks whether a file can be written at path: a run that draws for an hour
// should not end with a folder that is not there.
func checkOutput(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder, expected a PNG file to write", path)
	}
	f, err := fsatomic.Create(path)
	if err != nil {
		return err
	}
	f.Abort()
	return nil
}
