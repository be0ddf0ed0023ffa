package train

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/train/schedule"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// settle computes the number of steps and the settings that a resumed run must share.
func (r *Run) settle(s *lora.State) error {
	c := r.cfg
	r.steps = c.TotalSteps(r.train.StepsPerEpoch())
	if r.steps > math.MaxInt32 {
		return fmt.Errorf("train: epochs: %v of %d steps each are %d steps, expected at most %d", c.Epochs, r.train.StepsPerEpoch(), r.steps, math.MaxInt32)
	}
	masked := slices.ContainsFunc(s.Placement.Targets, func(t lora.Target) bool { return t.Dropout > 0 })
	if draws := int64(r.steps) * int64(c.GradientAccumulationSteps); masked && draws > math.MaxUint32 {
		return fmt.Errorf("train: gradient_accumulation_steps: %d of each of %d steps need %d masks of lora_dropout, expected at most %d, which have a number of their own",
			c.GradientAccumulationSteps, r.steps, draws, int64(math.MaxUint32))
	}
	r.trainableNum = s.Params()
	r.settings = settings{"precision": r.precision.String()}
	r.settings.bindConfig(c, r.steps)
	maps.Copy(r.settings, r.material.Settings)
	r.progress.RowsBy = r.material.RowsBy
	if err := r.settings.bindAdapter(s, c.InitAdapter != ""); err != nil {
		return err
	}
	if err := r.settings.bindModel(r.model); err != nil {
		return err
	}
	var err error
	if r.base != nil {
		r.settings["weights"], err = r.base.weightsIdentity()
	} else {
		r.settings["weights"], err = WeightsIdentity(r.model)
	}
	if err != nil {
		return err
	}
	r.progress.Format, r.progress.Settings = progressFormat, r.settings
	r.progress.Backend = r.dev.Info().Backend
	return nil
}

// settings are the settings of a run that affect its results.
type settings map[string]string

func (s settings) bind(key string, v any) { s[key] = fmt.Sprint(v) }

// bindConfig records the configuration keys that directly affect results.
func (s settings) bindConfig(c *config.Config, steps int) {
	if c.Task != config.Default().Task {
		s.bind("task", c.Task)
	}
	s.bind("batch_size", c.BatchSize)
	s.bind("gradient_accumulation_steps", c.GradientAccumulationSteps)
	s.bind("seed", c.Seed)
	s.bind("learning_rate", c.LearningRate)
	s.bind("schedule", c.Schedule)
	if !strings.HasPrefix(string(c.Schedule), "constant") {
		s.bind("steps", steps)
	}
	warmup := c.WarmupSteps
	if warmup == 0 {
		warmup = schedule.WarmupSteps(c.WarmupRatio, steps)
	}
	s.bind("warmup_steps", warmup) // the ratio's too
	s.bind("num_cycles", c.NumCycles)
	s.bind("power", c.Power)
	s.bind("lr_end", c.LREnd)
	s.bind("optimizer", c.Optimizer)
	s.bind("betas", c.Betas)
	s.bind("eps", c.Eps)
	s.bind("weight_decay", c.WeightDecay)
	s.bind("max_grad_norm", c.MaxGradNorm)
	s.bind("data.shuffle", c.Data.Shuffle)
	s.bind("data.drop_last", c.Data.DropLast)
	s.bind("quantize", cmp.Or(c.Quantize, quant.None))
	if c.BatchInvariant {
		s.bind("batch_invariant", true)
	}
	stop := c.EarlyStopping
	s.bind("early_stopping.patience", stop.Patience)
	if stop.Patience > 0 { // evaluations decide when the run ends
		s.bind("early_stopping.min_delta", stop.MinDelta)
		if c.BestMetric != config.Default().BestMetric {
			s.bind("best_metric", c.BestMetric)
		}
		s.bind("eval_steps", c.EvalSteps)
		s.bind("eval_batch_size", c.EvalRows())
	}
}

// bindAdapter records the configuration of an adapter key by key, and the values of an
// adapter from which training continues. The path of the base is not recorded.
func (s settings) bindAdapter(a *lora.State, continued bool) error {
	if err := s.bindFields("adapter.", a.Placement.Config().JSON(), "base_model_name_or_path"); err != nil || !continued { // the seed decides
		return err
	}
	s.bind("init_adapter", "values "+HashOf(a))
	return nil
}

// bindFields records the fields of a JSON object and of the objects nested in it,
// except the names in but.
func (s settings) bindFields(prefix string, object []byte, but ...string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	for key, raw := range fields {
		if slices.Contains(but, key) {
			continue
		}
		var text bytes.Buffer
		if err := json.Compact(&text, raw); err != nil {
			return fmt.Errorf("train: %w", err)
		}
		if text.Bytes()[0] != '{' {
			s.bind(prefix+key, text.String())
		} else if err := s.bindFields(prefix+key+".", text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// bindModel records the architecture settings in config.json.
func (s settings) bindModel(m *model.Model) error {
	raw, err := json.Marshal(m.Config)
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return s.bindFields("config.json ", raw, "EOS", "BOS", "DType")
}

const (
	wholeTensor = 1 << 20 // size up to which a tensor is read whole
	samples     = 16      // number of evenly spaced blocks that are read of a larger tensor
	sampleBlock = 4 << 10
)

// WeightsIdentity returns a fingerprint of weights without reading gigabytes. It covers
// the names, types and shapes of all tensors that the model uses, all bytes of tensors
// up to 1 MiB, and 16 evenly spaced blocks of 4 KiB of larger ones, including their
// first and last bytes. Training, merging or quantising changes nearly every block; a
// change only between the blocks goes unnoticed.
func WeightsIdentity(m *model.Model) (string, error) {
	h := sha256.New()
	for _, name := range m.Fresh() {
		fmt.Fprintf(h, "%q is new\n", name)
	}
	for _, used := range m.Used() {
		for _, name := range m.Stored(used) {
			v, err := m.Set().Lookup(name)
			if err != nil {
				return "", fmt.Errorf("train: %w", err)
			}
			fmt.Fprintf(h, "%q %v %v\n", name, v.DType, v.Shape)
			err = v.WithBytes(func(data []byte) error {
				if len(data) <= wholeTensor {
					h.Write(data)
					return nil
				}
				for i := range samples {
					at := (len(data) - sampleBlock) / (samples - 1) * i
					if i == samples-1 {
						at = len(data) - sampleBlock
					}
					h.Write(data[at : at+sampleBlock])
				}
				return nil
			})
			if err != nil {
				return "", fmt.Errorf("train: tensor %q: %w", name, err)
			}
		}
	}
	return fmt.Sprintf("sha256 %x", h.Sum(nil)[:8]), nil
}

// resume reads the checkpoint that the configuration asks for, if any.
func (r *Run) resume(s *lora.State) (trainer.Moments, error) {
	c := r.cfg
	if c.Resume == "" {
		steps, err := checkpoints(c.OutputDir)
		if err == nil && len(steps) > 0 {
			err = fmt.Errorf("train: output_dir %s has checkpoints of an earlier run (the last at step %d): go on with --resume, or choose another output_dir%s",
				c.OutputDir, steps[len(steps)-1], r.further())
		}
		return nil, err
	}
	path, err := findCheckpoint(c.Resume, c.OutputDir)
	if errors.Is(err, ErrNothingToResume) {
		err = fmt.Errorf("%w%s", err, r.further())
	}
	if err != nil {
		return nil, err
	}
	if err := r.checkHome(path); err != nil {
		return nil, err
	}
	p, err := readProgress(path)
	if err != nil {
		return nil, err
	}
	if err := p.same(r.progress); err != nil {
		return nil, fmt.Errorf("train: checkpoint %s: %w%s", path, err, r.further())
	}
	if p.Step > r.steps {
		return nil, fmt.Errorf("train: checkpoint %s: %w: it is at step %d, the run has %d", path, ErrCheckpoint, p.Step, r.steps)
	}
	moments, err := readTensors(path, p, s)
	if err != nil {
		return nil, err
	}
	if was, now := p.Backend, r.progress.Backend; was != now {
		r.observer.note("note     the checkpoint was made on %s, this is %s: results are the same but for rounding", was, now)
		p.Backend = now
	}
	r.progress, r.resumed = p, path
	return moments, nil
}

// further says how to train the adapter of a finished run in output_dir further. It is empty if there is none.
func (r *Run) further() string {
	dir := filepath.Join(r.cfg.OutputDir, AdapterDir)
	if !isFolder(dir) {
		return ""
	}
	return fmt.Sprintf("; to train the finished adapter further, give init_adapter: %s and another output_dir", dir)
}

// checkHome refuses to go on from a checkpoint of elsewhere in a folder that
// has checkpoints of its own.
func (r *Run) checkHome(path string) error {
	home, err := os.Stat(r.cfg.OutputDir)
	if err != nil {
		return fmt.Errorf("train: output_dir: %w", err)
	}
	if from, err := os.Stat(filepath.Dir(filepath.Clean(path))); err == nil && os.SameFile(from, home) {
		return nil
	}
	steps, err := checkpoints(r.cfg.OutputDir)
	if err == nil && len(steps) > 0 {
		err = fmt.Errorf("train: output_dir %s has checkpoints of its own (the last at step %d), expected none beside resume %s of another folder", r.cfg.OutputDir, steps[len(steps)-1], path)
	}
	return err
}
