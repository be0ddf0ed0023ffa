package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// drawn is the output of `draw --json`.
type drawn struct {
	Output string `json:"output"`
	Width  int    `json:"width"`  // of the file
	Height int    `json:"height"` //
	recipe
	// Truncated lists the prompts that a text encoder did not read whole.
	Truncated []diffusion.TruncatedPrompt `json:"truncated,omitempty"`
	Seconds   float64                     `json:"seconds"`
}

// recipe holds the settings that reproduce the images exactly. The output file also contains it.
type recipe struct {
	Model       string `json:"model,omitempty"`
	Transformer string `json:"transformer,omitempty"`
	Quantize    string `json:"quantize,omitempty"`
	// Size is the size of an image, such as 768x512.
	Size     string         `json:"size"`
	Steps    int            `json:"steps"`
	Guidance float64        `json:"guidance"`
	Negative string         `json:"negative,omitempty"` // or the file of its embedding
	Controls []string       `json:"controls,omitempty"`
	Weight   float64        `json:"adapter_weight,omitempty"`
	Pictures []drawnPicture `json:"pictures"`
}

// drawnPicture describes one image of a grid.
type drawnPicture struct {
	Prompt  string `json:"prompt"` // or the file of its embedding
	Seed    uint64 `json:"seed"`
	Adapter string `json:"adapter,omitempty"`
	Row     int    `json:"row"`
	Column  int    `json:"column"`
}

// recipe returns the settings of the flags and the model, without images.
func (d *drawing) recipe() recipe {
	f := d.flags
	width, height := d.generator.Size(d.plan)
	r := recipe{
		Model: f.model, Transformer: f.transformer.File, Size: fmt.Sprintf("%dx%d", width, height),
		Steps: d.plan.Drawing.Steps, Controls: f.controls, Guidance: d.plan.Guidance, Negative: d.plan.Negative,
	}
	if f.given("quantize") {
		r.Quantize = fmt.Sprint(f.quantize)
	}
	if f.adapter != "" {
		r.Weight = f.weight
	}
	return r
}

// texts returns the metadata of the output file: how its first image was generated, in the format of other tools, and
// the whole recipe. Files are identified by name only, without their folders.
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

// fileName returns the base name of the file at path, or path itself if no file exists there.
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

// parameters formats a recipe as AUTOMATIC1111's web UI does: the prompt, the negative prompt, and a line of settings.
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
		last := r.Pictures[len(r.Pictures)-1] // has the adapter even if the first does not
		settings = append(settings, "Adapter: "+settingValue(last.Adapter), "Adapter weight: "+strconv.FormatFloat(r.Weight, 'g', -1, 64))
	}
	settings = append(settings, "Version: lorafuse "+readVersion().Version)
	return strings.Join(append(lines, strings.Join(settings, ", ")), "\n")
}

// settingValue returns a value for the settings line, quoted if other readers would misparse it.
func settingValue(value string) string {
	if strings.ContainsAny(value, ",:\n\"") {
		return strconv.Quote(value)
	}
	return value
}

// checkOutput reports whether a file can be written at path, so that an hour of sampling does not end with a missing
// folder.
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
