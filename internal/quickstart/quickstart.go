// Package quickstart chooses the settings of a training run that the user left open, from the model and the data. The
// same model, data and machine give the same settings.
package quickstart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/data/imagefolder"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
	"github.com/lorafuse/lorafuse/train/config"
)

// ErrImages is wrapped if the data are images, or the model draws them.
var ErrImages = errors.New("images are encoded first: lorafuse data cache, then lorafuse train with a YAML file (docs/diffusion.md)")

// Sizes that the choices depend on.
const (
	sampled     = 2000     // rows that are read to choose settings; data with more rows are large
	largeData   = 64 << 20 // bytes; larger files are read once
	cpuTokens   = 1024     // the longest rows on the CPU
	gpuTokens   = 2048     // the longest rows on a GPU
	windowSize  = 512      // rows of plain text
	leastSteps  = 60       // steps that a small data set is repeated for
	mostEpochs  = 20       // repetitions at most
	evalFrom    = 200      // rows; a part of larger data is for evaluation
	lengthGrain = 64       // max_length is a multiple of this
)

// Choose sets the keys of c that the user left open, and returns lines that report the task and the settings. Model
// and data must be given. Errors: ErrImages, and the errors of the model and the data.
func Choose(ctx context.Context, c *config.Config, o hub.Options) (lines []string, err error) {
	s := &settings{Config: c, device: device(c.Backend)}
	if len(c.Data.Train) == 0 { // the data belong to a task without texts
		s.chooseAdapter()
		return wrapped("settings", s.chosen), s.err
	}
	s.dir, err = hub.Resolve(ctx, c.Model, o)
	if errors.Is(err, hub.ErrPipeline) {
		return nil, fmt.Errorf("%s: %w", c.Model, ErrImages)
	} else if err != nil {
		return nil, err
	}
	for _, entry := range c.Data.Train {
		if hasImages(entry) {
			return nil, fmt.Errorf("%s: %w", entry, ErrImages)
		}
	}
	if s.model, err = model.ReadConfig(s.dir); err != nil {
		return nil, err
	}
	read := c.DataOptions()
	read.Resolve = hub.DataFiles(ctx, o)
	if err := s.chooseTask(read); err != nil {
		return nil, err
	}
	if err := s.readRows(ctx, read); err != nil {
		return nil, err
	}
	s.chooseAll()
	if s.err != nil {
		return nil, s.err
	}
	return append(s.lines, wrapped("settings", s.chosen)...), nil
}

// settings are the settings that are being chosen.
type settings struct {
	*config.Config
	model  *model.Config
	dir    string
	device backend.Info

	set    *data.Dataset // the first rows; nil for files of token IDs
	rows   int           // the number of rows, if all are in set, or else 0
	large  bool          // the files have many rows
	plain  bool          // the files are plain text
	lines  []string
	chosen []string
	err    error
}

// choose sets a key unless the user gave it.
func (s *settings) choose(key, value string) {
	if s.Given(key) || s.err != nil {
		return
	}
	s.err = s.Set(key + "=" + value)
	s.chosen = append(s.chosen, key+" "+value)
}

// tasks maps kinds of rows to the tasks that learn them.
var tasks = map[data.Rows]config.Task{
	data.LanguageRows: config.TaskLanguage, data.PairRows: config.TaskEmbedding,
	data.LabelledRows: config.TaskClassification, data.PreferenceRows: config.TaskPreference,
}

// chooseTask chooses the task by the columns of the rows.
func (s *settings) chooseTask(o data.Options) error {
	if s.Given("task") || s.Given("adapter.task_type") {
		return nil
	}
	rows, columns, err := data.Detect(s.Data.Train, o)
	if err != nil {
		return err
	}
	task := tasks[rows]
	if err := s.Set("task=" + string(task)); err != nil {
		return err
	}
	from := "the data has no columns"
	if len(columns) > 0 {
		from = "by the columns " + strings.Join(columns, ", ")
	}
	s.lines = append(s.lines, fmt.Sprintf("task     %s: %s", task, from))
	return nil
}

// readRows reads the first rows as the run will read them, without a limit on their length.
func (s *settings) readRows(ctx context.Context, o data.Options) error {
	size, err := data.TotalBytes(s.Data.Train, o)
	if err != nil {
		return err
	}
	s.large = size > largeData
	name := strings.ToLower(filepath.Ext(s.Data.Train[0]))
	if s.Data.Format == data.FormatTokens || s.Data.Format == data.FormatAuto && name == ".safetensors" {
		return nil
	}
	tok, err := tokenizer.Load(s.dir)
	if err != nil {
		return err
	}
	template, err := chat.Find(s.Data.ChatTemplate, tok.SpecialTokens(), s.dir)
	if err != nil {
		return fmt.Errorf("data.chat_template: %w", err)
	}
	resolve := o.Resolve
	o = s.DataOptions() // of the chosen task
	o.Resolve = resolve
	o.Tokenizer, o.Texts, o.MaxRows, o.MaxLength = tok, tok, sampled, s.longest()
	if template != nil {
		o.Template = data.Chat(template)
	}
	if s.set, err = data.Load(ctx, s.Data.Train, o); err != nil && template == nil && errors.Is(err, data.ErrOption) {
		name := builtIn(tok)
		if template, err = chat.Find(name, tok.SpecialTokens()); err != nil {
			return err
		}
		o.Template = data.Chat(template)
		if s.set, err = data.Load(ctx, s.Data.Train, o); err == nil {
			s.choose("data.chat_template", name)
		}
	}
	if err != nil {
		return err
	}
	s.plain = s.set.Sources()[0].Format == data.FormatText
	if n := s.set.Len(); n < sampled {
		s.rows = n
	}
	return nil
}

// builtIn returns the built-in chat template that fits the special tokens of a tokenizer best.
func builtIn(tok *tokenizer.Tokenizer) string {
	for _, t := range []struct{ name, end string }{{"chatml", "<|im_end|>"}, {"llama3", "<|eot_id|>"}, {"gemma", "<end_of_turn>"}} {
		if _, ok := tok.TokenID(t.end); ok {
			return t.name
		}
	}
	return "mistral" // whose turns end with the tokenizer's own end of text
}

// longest returns the maximum length of rows.
func (s *settings) longest() int {
	most := cpuTokens
	if s.device.GPU {
		most = gpuTokens
	}
	if n := s.model.MaxLength(); n > 0 {
		most = min(most, n)
	}
	return most
}

// chooseAdapter chooses rank, scale and targets of a new adapter.
func (s *settings) chooseAdapter() {
	if s.InitAdapter != "" {
		return
	}
	s.choose("adapter.r", "16")
	s.choose("adapter.lora_alpha", strconv.Itoa(2*s.Adapter.R))
	if len(s.Adapter.TargetParameters) == 0 && len(s.Data.Train) > 0 {
		s.choose("adapter.target_modules", "all-linear")
	}
}

// chooseAll chooses all keys but the task and the chat template.
func (s *settings) chooseAll() {
	s.chooseAdapter()
	s.chooseLength()
	s.chooseBatches()
	s.choose("learning_rate", strconv.FormatFloat(s.rate(), 'g', -1, 64))
	if s.Schedule != "constant" && !s.Given("warmup_steps") {
		s.choose("warmup_ratio", "0.05")
	}
	if s.set != nil && !s.Evaluates() && (s.rows == 0 || s.rows >= evalFrom) && !s.plain {
		share := 0.05
		if s.rows == 0 {
			share = 0.02
		}
		s.choose("data.eval_fraction", strconv.FormatFloat(share, 'g', -1, 64))
	}
	if limit := s.device.Memory / 10 * 8 >> 30; limit > 0 && s.MemoryLimit == 0 {
		s.choose("memory", fmt.Sprintf("%dGiB", limit))
	}
}

// chooseLength chooses the maximum length of rows, and packing if rows are short in comparison.
func (s *settings) chooseLength() {
	if s.set == nil {
		return
	}
	most, mean := s.longest(), float64(s.set.Stats().Tokens)/float64(max(1, s.set.Len()))
	if s.rows > 0 {
		most = min(most, (s.set.Stats().Longest+lengthGrain-1)/lengthGrain*lengthGrain)
	}
	if s.plain {
		most = min(s.longest(), windowSize)
	}
	s.choose("data.max_length", strconv.Itoa(most))
	if s.Task == config.TaskLanguage && s.rows == 0 && !s.plain && !s.Data.LengthBucketing && mean*4 < float64(s.Data.MaxLength) {
		s.choose("data.packing", "true")
	}
}

// chooseBatches chooses the rows of a step and the number of passes over the data.
func (s *settings) chooseBatches() {
	batch := 8
	switch {
	case s.Task == config.TaskEmbedding:
		batch = 32 // since the other rows are the negatives
	case s.Data.Packing:
		batch = 2
	case s.rows > 0 && s.rows < 100:
		batch = 4
	}
	if s.rows > 0 {
		batch = min(batch, s.rows)
	}
	if s.set != nil {
		s.choose("batch_size", strconv.Itoa(batch))
	}
	if s.Given("steps") || s.Given("epochs") {
		return
	}
	epochs := 3
	switch {
	case s.large:
		epochs = 1
	case s.rows > 0:
		perEpoch := max(1, s.rows/(s.BatchSize*s.GradientAccumulationSteps))
		epochs = max(epochs, min(mostEpochs, (leastSteps+perEpoch-1)/perEpoch))
	}
	s.choose("epochs", strconv.Itoa(epochs))
}

// rate returns a learning rate: 2e-4 for models that are 2048 wide, falling with the root of the width; a tenth of that
// for preferences.
func (s *settings) rate() float64 {
	rate := 2e-4 * math.Sqrt(2048/float64(max(64, s.model.HiddenSize)))
	if s.Task == config.TaskPreference {
		rate /= 10
	}
	digit := math.Pow(10, math.Floor(math.Log10(rate)))
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(math.Round(rate/digit)*digit, 'e', 0, 64), 64)
	return rounded
}

// device describes the device that a run would use, or nothing.
func device(name string) backend.Info {
	names := []string{name}
	if name == backend.Auto || name == "" {
		names = backend.Registered()
	}
	for _, n := range names {
		if infos, err := backend.Devices(n); err == nil && len(infos) > 0 {
			return infos[0]
		}
	}
	return backend.Info{}
}

// hasImages reports whether an entry of data is a folder of images.
func hasImages(entry string) bool {
	entries, err := os.ReadDir(entry)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return imagefolder.IsImage(e.Name()) })
}

// wrapped joins words to lines and puts a heading before the first line.
func wrapped(heading string, words []string) (lines []string) {
	line := fmt.Sprintf("%-8s", heading)
	for i, word := range words {
		if i < len(words)-1 {
			word += ","
		}
		if len(line)+1+len(word) > 100 {
			lines, line = append(lines, line), strings.Repeat(" ", 8)
		}
		line += " " + word
	}
	return append(lines, line)
}

// List writes entries of data as the value of a key.
func List(entries []string) string {
	raw, err := json.Marshal(entries)
	if err != nil {
		return ""
	}
	return string(raw)
}
