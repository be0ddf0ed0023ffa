package tuning

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// What belongs to a job lies in its folder, so that it goes on whatever becomes of the
// files and of the adapter that it was made with.
const (
	trainingData   = "train.jsonl"
	validationData = "valid.jsonl"
	initialAdapter = "init"
	outputDir      = "output"
)

// Most of what a request can have.
const (
	mostSuffix        = 64
	mostMetadata      = 16
	mostMetadataKey   = 64
	mostMetadataValue = 512
	mostEpochs        = 1000
	mostBatch         = 1024
	mostFactor        = 1000 // of learning_rate_multiplier and beta
)

// Create takes a job, which is checked and then waits for its turn. It fails with
// ErrInvalid, with ErrNotFound of files, and as [lora.Registry.Acquire] does where the
// model is not there.
func (s *Service) Create(ctx context.Context, r Request, owner string) (_ Job, err error) {
	if r.Method == "" {
		r.Method = Supervised
	}
	if err := r.check(); err != nil {
		return Job{}, err
	}
	if r.Seed == nil {
		r.Seed = new(uint64(rand.Uint32() >> 1))
	}
	j := &Job{ID: newID(jobPrefix), Owner: owner, Created: time.Now().Unix(), Status: Validating, Request: r, Settled: r.Hyperparameters, Continues: r.Model != s.options.Name}
	var initial string
	if j.Continues {
		lease, err := s.registry.Acquire(ctx, r.Model)
		if err != nil {
			return Job{}, err
		}
		defer lease.Release()
		if initial, err = s.folderOf(lease.Version().Digest()); err != nil {
			return Job{}, err
		}
	}
	c, err := s.config(j)
	if err != nil {
		return Job{}, err
	}
	if !j.Continues {
		p, err := lora.NewPlacement(c.Adapter.LoRA(), lora.ModelOf(s.options.Model.Config.ModelType, s.options.Model.Modules()))
		if err == nil {
			err = p.Strict()
		}
		if err != nil {
			return Job{}, invalid("lora", "%s", strings.TrimPrefix(err.Error(), "lora: "))
		}
	}
	for _, f := range []struct{ param, id string }{{"training_file", r.TrainingFile}, {"validation_file", r.ValidationFile}} {
		if err := s.usable(f.param, f.id); err != nil {
			return Job{}, err
		}
	}
	err = fsatomic.ReplaceDir(s.path(jobsDir, j.ID), func(dir string) error {
		err := hold(s.path(filesDir, r.TrainingFile), filepath.Join(dir, trainingData))
		if err == nil && r.ValidationFile != "" {
			err = hold(s.path(filesDir, r.ValidationFile), filepath.Join(dir, validationData))
		}
		if err == nil && j.Continues {
			err = copyAdapter(initial, filepath.Join(dir, initialAdapter))
		}
		return err
	})
	if err != nil {
		return Job{}, written(err)
	}
	taken := s.taken()
	s.mu.Lock()
	defer s.mu.Unlock()
	j.Name = s.nameFor(j, taken)
	err = s.store.update(func(t *txn) (err error) {
		if j.Order, err = t.order(); err != nil {
			return err
		}
		if err := t.appendEvents(j.ID, message(Info, "Created fine-tuning job: %s", j.ID), message(Info, "Validating training file: %s", files(r))); err != nil {
			return err
		}
		return t.put(jobBucket, j.ID, j)
	})
	if err != nil {
		s.tidy(j.ID)
		return Job{}, err
	}
	s.jobs[j.ID] = j
	s.moved.Broadcast()
	return *j, nil
}

func files(r Request) string {
	if r.ValidationFile == "" {
		return r.TrainingFile
	}
	return r.TrainingFile + " and validation file: " + r.ValidationFile
}

// usable fails where there is no file of an id that a job can be made with.
func (s *Service) usable(param, id string) error {
	if id == "" {
		return nil
	}
	f, err := s.File(id)
	if err != nil {
		return &Error{Kind: ErrInvalid, Param: param, Code: "invalid_file", Message: fmt.Sprintf("%s: there is no file %.200q", param, id)}
	}
	if f.Purpose != FineTune {
		return &Error{Kind: ErrInvalid, Param: param, Code: "invalid_file", Message: fmt.Sprintf("%s: the purpose of %s is %s, expected %s", param, id, f.Purpose, FineTune)}
	}
	return nil
}

// folderOf is where a version that is loaded lies.
func (s *Service) folderOf(d lora.Digest) (string, error) {
	for _, info := range s.registry.List() {
		for _, v := range info.Versions {
			if v.Digest == d {
				return v.Dir, nil
			}
		}
	}
	return "", &Error{Kind: ErrInvalid, Param: "model", Message: "model: the adapter was unloaded just now"}
}

// hold has a file under another name too, whatever becomes of the first.
func hold(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	in, err := os.Open(from) // of another file system, or one without links
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// copyAdapter copies an adapter, without what else lies beside it.
func copyAdapter(from, to string) error {
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	for _, name := range []string{lora.ConfigFile, lora.WeightsFile} {
		raw, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), raw, 0o666)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// check finds what no job can have.
func (r *Request) check() error {
	h := r.Hyperparameters
	switch {
	case r.Model == "":
		return invalid("model", "is missing, expected the name of a model")
	case r.TrainingFile == "":
		return invalid("training_file", "is missing, expected the id of a file")
	case len(r.Suffix) > mostSuffix:
		return invalid("suffix", "has %d bytes, at most %d", len(r.Suffix), mostSuffix)
	case len(r.Metadata) > mostMetadata:
		return invalid("metadata", "has %d keys, at most %d", len(r.Metadata), mostMetadata)
	case r.Method != Supervised && r.Method != DPO:
		return invalid("method.type", "found %.80q, expected %s or %s", r.Method, Supervised, DPO)
	case h.Epochs != nil && (*h.Epochs < 1 || *h.Epochs > mostEpochs):
		return invalid("n_epochs", "found %d, expected a whole number from 1 to %d", *h.Epochs, mostEpochs)
	case h.BatchSize != nil && (*h.BatchSize < 1 || *h.BatchSize > mostBatch):
		return invalid("batch_size", "found %d, expected a whole number from 1 to %d", *h.BatchSize, mostBatch)
	case h.RateMultiplier != nil && !(*h.RateMultiplier > 0 && *h.RateMultiplier <= mostFactor):
		return invalid("learning_rate_multiplier", "found %v, expected a number above 0, at most %d", *h.RateMultiplier, mostFactor)
	case h.Beta != nil && r.Method != DPO:
		return invalid("beta", "is of the method %s, and this one is %s", DPO, r.Method)
	case h.Beta != nil && !(*h.Beta > 0 && *h.Beta <= mostFactor):
		return invalid("beta", "found %v, expected a number above 0, at most %d", *h.Beta, mostFactor)
	}
	if r.Suffix != "" {
		if err := lora.CheckName(r.Suffix); err != nil {
			return invalid("suffix", "%s", strings.TrimPrefix(err.Error(), "lora: "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		if value := r.Metadata[key]; len(key) > mostMetadataKey || len(value) > mostMetadataValue {
			return invalid("metadata", "%.64q has %d bytes, and its value %d, at most %d and %d", key, len(key), len(value), mostMetadataKey, mostMetadataValue)
		}
	}
	return nil
}

// What a job has where its request says nothing.
const (
	normalEpochs  = 3
	normalRank    = 16
	normalTargets = "all-linear"
	normalBeta    = 0.1

	rateOfSupervised = 2e-4 // times learning_rate_multiplier
	rateOfDPO        = 5e-5
)

// normalBatch is a thirty-second of the rows, from 1 to 16.
func normalBatch(rows int) int { return min(max(rows/32, 1), 16) }

// settle fills in the hyperparameters that are left to the service.
func (h *Hyperparameters) settle(m Method, rows int) {
	h.Epochs = orNormal(h.Epochs, normalEpochs)
	h.BatchSize = orNormal(h.BatchSize, normalBatch(rows))
	h.RateMultiplier = orNormal(h.RateMultiplier, 1)
	if m == DPO {
		h.Beta = orNormal(h.Beta, normalBeta)
	}
}

func orNormal[T any](v *T, normal T) *T {
	if v == nil {
		return &normal
	}
	return v
}

// config is the run of a job, as `lorafuse train` would have it. It fails with ErrInvalid
// where what the request says of the adapter cannot be.
func (s *Service) config(j *Job) (*config.Config, error) {
	h := j.Settled
	h.settle(j.Request.Method, j.Rows)
	in := func(name string) string { return s.path(jobsDir, j.ID, name) }
	data := map[string]any{"train": in(trainingData), "format": "jsonl", "max_length": s.options.MaxLength}
	keys := map[string]any{
		"model": s.options.Model.Dir, "output_dir": in(outputDir), "resume": "latest", "task": "language", "seed": *j.Request.Seed,
		"data": data, "epochs": *h.Epochs, "batch_size": *h.BatchSize, "learning_rate": rateOfSupervised * *h.RateMultiplier,
		"save_steps": 0, "save_limit": 2, "log": map[string]any{"tensorboard": false, "plot": false},
	}
	if s.options.Template != "" {
		data["chat_template"] = s.options.Template
	}
	if j.Request.ValidationFile != "" {
		data["eval"] = in(validationData)
	}
	if j.Request.Method == DPO {
		keys["task"], keys["preference"], keys["learning_rate"] = "preference", map[string]any{"beta": *h.Beta}, rateOfDPO**h.RateMultiplier
	}
	adapter, err := j.Request.adapter(j.Continues)
	if err != nil {
		return nil, err
	}
	if keys["adapter"] = adapter; j.Continues {
		keys["init_adapter"] = in(initialAdapter)
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	c, err := config.Parse("", text)
	if e, ok := errors.AsType[*config.Error](err); ok {
		if key, ok := strings.CutPrefix(e.Key, "adapter"); ok {
			return nil, invalid("lora"+key, "%s", e.Problem)
		}
		if e.Key == "init_adapter" {
			return nil, invalid("lora", "an adapter that is gone on from brings its own settings; only lora_dropout may differ")
		}
		return nil, fmt.Errorf("tuning: %s: %w", e.Key, err)
	}
	return c, err
}

// adapter is what a request says of it, and what goes without saying.
func (r *Request) adapter(continues bool) (map[string]any, error) {
	given := map[string]any{}
	if len(r.Adapter) > 0 {
		d := json.NewDecoder(bytes.NewReader(r.Adapter))
		d.UseNumber()
		if err := d.Decode(&given); err != nil || given == nil {
			return nil, invalid("lora", "expected an object with the keys of PEFT's LoraConfig")
		}
	}
	if continues {
		return given, nil
	}
	if given["r"] == nil {
		given["r"] = normalRank
	}
	if given["lora_alpha"] == nil {
		given["lora_alpha"] = 2 * normalRank
		if n, ok := given["r"].(json.Number); ok {
			if rank, err := n.Int64(); err == nil && rank > 0 && rank < 1<<16 {
				given["lora_alpha"] = 2 * rank
			}
		}
	}
	if given["target_modules"] == nil && given["target_parameters"] == nil {
		given["target_modules"] = normalTargets
	}
	return given, nil
}
