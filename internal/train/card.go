package train

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// Card describes the adapters of a task to readers of their model cards.
type Card struct {
	Pipeline string // pipeline_tag of the Hub
	Library  string // that loads the model next to PEFT: transformers or diffusers
	// Python loads the adapter {adapter} of the model {base}. {classes} is the number of classes.
	Python string
	// Serves reports whether vLLM serves such adapters.
	Serves bool
}

// cardFile is the model card in the folder of an adapter.
const cardFile = "README.md"

// cardEnd begins the last line of a model card. The line has a hash of the text above it, which shows whether somebody
// has edited the card since.
const cardEnd = "<!-- Written by lorafuse, which keeps this file once it is edited: "

// seal appends the last line of a model card.
func seal(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s%s%x -->\n", text, cardEnd, sum[:8])
}

// ownCard returns the model card in a folder if a user has written or edited it, or else nil.
func ownCard(dir string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(dir, cardFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text := string(raw)
	if i := strings.LastIndex(text, cardEnd); i >= 0 && seal(text[:i]) == text {
		return nil, nil
	}
	return raw, nil
}

// writeCard writes the model card of the adapter in dir. A card that a user has written, own, is kept. The same run
// writes the same bytes, resumed or not: the card has no times and no paths.
func (r *Run) writeCard(dir string, own []byte) error {
	if own == nil {
		adapter, err := lora.ReadConfig(dir)
		if err != nil {
			return err
		}
		own = []byte(seal(r.card(adapter)))
	}
	return fsatomic.WriteFile(filepath.Join(dir, cardFile), own)
}

// card returns the text of the model card of an adapter.
func (r *Run) card(adapter *lora.Config) string {
	task := tasks[r.cfg.Task].Card
	base, onHub := baseName(r.cfg.Model)
	var b strings.Builder
	b.WriteString("---\n")
	if onHub {
		fmt.Fprintf(&b, "base_model: %s\n", base)
	}
	if sets := hubData(r.cfg); len(sets) > 0 {
		b.WriteString("datasets:\n- " + strings.Join(sets, "\n- ") + "\n")
	}
	tags := []string{"lora", "lorafuse", task.Library}
	if onHub {
		tags = append(tags, "base_model:adapter:"+base)
	}
	slices.Sort(tags)
	fmt.Fprintf(&b, "library_name: peft\npipeline_tag: %s\ntags:\n- %s\n---\n\n", task.Pipeline, strings.Join(tags, "\n- "))
	shown := base
	if onHub {
		shown = fmt.Sprintf("[%s](https://huggingface.co/%[1]s)", base)
	}
	fmt.Fprintf(&b, "# %s adapter for %s\n\nTrained with lorafuse (task: %s), in PEFT's format.\n", adapter.Method(), shown, r.cfg.Task)
	b.WriteString("\n## Data\n\n" + table("| | |", r.dataRows()))
	b.WriteString("\n## Settings\n\n" + table("| | |", r.settingRows(adapter)))
	b.WriteString("\n## Losses\n\n" + r.losses())
	b.WriteString("\n## Use\n\nWith PEFT:\n\n```python\n" + r.python(task, base) + "```\n")
	if task.Serves {
		b.WriteString(servedBy(adapter, base))
	}
	try := TryOut(r.cfg)
	fmt.Fprintf(&b, "\nWith lorafuse:\n\n```sh\nlorafuse %s --model %s --adapter this-folder %s\n```\n\n", try.Command, base, try.Input)
	return b.String()
}

// cached matches the folder of a model in the shared cache.
var cached = regexp.MustCompile(`models--([^/\\]+?)--([^/\\]+)[/\\]snapshots[/\\][0-9a-f]{40}[/\\]?$`)

// baseName returns the name of a base model on the Hub, or the last part of the path of a folder.
func baseName(name string) (base string, onHub bool) {
	if m := cached.FindStringSubmatch(name); m != nil {
		return m[1] + "/" + m[2], true
	}
	id, _, _ := strings.Cut(name, "@")
	if _, err := os.Stat(name); err != nil && strings.Count(id, "/") == 1 && !filepath.IsAbs(id) && !strings.HasPrefix(id, ".") {
		return id, true
	}
	return inline(lastPart(name)), false
}

// lastPart returns the last part of a path, absolute if the path is only dots.
func lastPart(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	return filepath.Base(path)
}

// inline returns text without the characters that end a cell of a table, a line or code.
func inline(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == '|' || c == '`' {
			return '_'
		}
		return c
	}, text)
}

// hubData returns the names of the datasets on the Hub.
func hubData(c *config.Config) (names []string) {
	for _, name := range append(append([]string{}, c.Data.Train...), c.Data.Eval...) {
		if hub.IsDataset(name) {
			id := strings.TrimPrefix(strings.TrimPrefix(name, "hf://"), "datasets/")
			id, _, _ = strings.Cut(id, ":")
			id, _, _ = strings.Cut(id, "@")
			names = append(names, id)
		}
	}
	return names
}

// row is a row of a table of the card.
type row struct{ name, value string }

func table(head string, rows []row) string {
	text := head + "\n" + strings.Repeat("|---", strings.Count(head, "|")-1) + "|\n"
	for _, r := range rows {
		text += "| " + r.name + " | " + r.value + " |\n"
	}
	return text
}

// files formats the names of data files.
func files(names []string) string {
	var shown []string
	for _, name := range names {
		if !hub.IsDataset(name) {
			name = lastPart(name)
		}
		shown = append(shown, "`"+inline(name)+"`")
	}
	return strings.Join(shown, ", ")
}

func (r *Run) dataRows() []row {
	d := r.cfg.Data
	rows := []row{{"training data", files(d.Train)}}
	if len(d.Train) == 0 {
		rows[0].value = "images with captions"
	}
	rows = append(rows, row{"rows", r.train.String()})
	switch {
	case len(d.Eval) > 0:
		rows = append(rows, row{"evaluation data", files(d.Eval)})
	case d.EvalFraction > 0:
		rows = append(rows, row{"evaluation data", fmt.Sprintf("%g of the rows, drawn by seed", d.EvalFraction)})
	}
	return rows
}

func (r *Run) settingRows(adapter *lora.Config) []row {
	c := r.cfg
	scale := "lora_alpha/r"
	if adapter.UseRSLoRA {
		scale = "lora_alpha/√r"
	}
	rows := []row{
		{"r", strconv.Itoa(adapter.R)},
		{"lora_alpha", fmt.Sprintf("%g (scale %s)", adapter.LoraAlpha, scale)},
		{"lora_dropout", fmt.Sprintf("%g", adapter.LoraDropout)},
		{"target modules", targets(adapter.TargetModules)},
		{"trained parameters", strconv.Itoa(r.trainableNum)},
		{"learning rate", fmt.Sprintf("%g, %s", c.LearningRate, c.Schedule)},
		{"batch", fmt.Sprintf("%d rows × %d accumulated", c.BatchSize, c.GradientAccumulationSteps)},
		{"steps", strconv.Itoa(r.progress.Step)},
		{"optimizer", fmt.Sprintf("%s, betas %g and %g, weight decay %g, gradient norm ≤ %g", c.Optimizer, c.Betas[0], c.Betas[1], c.WeightDecay, c.MaxGradNorm)},
		{"precision", r.precision.String()},
		{"seed", strconv.FormatUint(c.Seed, 10)},
	}
	if c.Quantize != quant.None {
		rows = append(rows, row{"base weights quantized to", string(c.Quantize)})
	}
	if len(c.Data.Train) > 0 {
		rows = append(rows, row{"longest row", fmt.Sprintf("%d tokens", c.Data.MaxLength)})
	}
	return rows
}

// targets formats target modules: a pattern, or the last parts of names.
func targets(m lora.ModuleSet) string {
	if m.Pattern != "" {
		return "`" + inline(m.Pattern) + "`"
	}
	var names []string
	for _, n := range m.Names {
		names = append(names, inline(n[strings.LastIndexByte(n, '.')+1:]))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// losses returns the table of the losses of the run.
func (r *Run) losses() string {
	p := r.progress
	rows := []row{{"training", fmt.Sprintf("%.4f | %.4f", p.FirstLoss, p.LastLoss)}}
	if p.FirstEval != nil && p.LastEval != nil {
		rows = append(rows, row{"evaluation", fmt.Sprintf("%.4f | %.4f", float64(*p.FirstEval), float64(*p.LastEval))})
	}
	text := table("| | first | last |", rows)
	if p.Accuracy != nil {
		text += fmt.Sprintf("\nAccuracy of the last evaluation: %.4f\n", *p.Accuracy)
	}
	return text
}

// python returns the code that loads the adapter.
func (r *Run) python(task Card, base string) string {
	classes := ""
	if names := r.model.Config.Classes.Names; names != nil {
		classes = strconv.Itoa(len(names))
	}
	return strings.NewReplacer("{base}", strconv.Quote(base), "{adapter}", `"this-folder"`, "{classes}", classes).Replace(task.Python)
}

// servedBy returns how vLLM serves an adapter, or why it cannot.
func servedBy(adapter *lora.Config, base string) string {
	rank := adapter.R
	for _, p := range adapter.RankPattern {
		rank = max(rank, p.R)
	}
	const smallest, largest = 8, 512 // of vLLM's --max-lora-rank, which are powers of 2
	var why string
	switch {
	case adapter.Method() != lora.MethodLoRA:
		why = adapter.Method()
	case adapter.Bias != "none" || adapter.LoraBias:
		why = "trained biases"
	case len(adapter.ModulesToSave) > 0 || len(adapter.TrainableTokenIndices) > 0:
		why = "modules saved in full"
	case len(adapter.AlphaPattern) > 0 || len(adapter.RankPattern) > 0:
		why = "ranks or scales that differ between modules"
	case rank > largest:
		why = fmt.Sprintf("ranks above %d", largest)
	}
	if why != "" {
		return fmt.Sprintf("\nvLLM does not load adapters with %s; merge this one with `lorafuse merge` first.\n", why)
	}
	rank = max(smallest, 1<<bits.Len(uint(rank-1)))
	return fmt.Sprintf("\nWith vLLM:\n\n```sh\nvllm serve %s --enable-lora --max-lora-rank %d --lora-modules my-adapter=this-folder\n```\n", base, rank)
}
