package tuning

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// Method is the training method of a job.
type Method string

// The methods.
const (
	Supervised Method = "supervised" // trains on the given answers
	DPO        Method = "dpo"        // trains on preferences between two answers
)

// Hyperparameters are the hyperparameters of a job. Nil means that the service chooses.
type Hyperparameters struct {
	Epochs         *int     `json:"n_epochs,omitempty"`
	BatchSize      *int     `json:"batch_size,omitempty"`
	RateMultiplier *float64 `json:"learning_rate_multiplier,omitempty"`
	Beta           *float64 `json:"beta,omitempty"` // of DPO
}

// Request describes a job to create.
type Request struct {
	Model           string            `json:"model"`
	TrainingFile    string            `json:"training_file"`
	ValidationFile  string            `json:"validation_file,omitempty"`
	Suffix          string            `json:"suffix,omitempty"`
	Seed            *uint64           `json:"seed,omitempty"`
	Method          Method            `json:"method"`
	Hyperparameters Hyperparameters   `json:"hyperparameters"`
	Adapter         json.RawMessage   `json:"lora,omitempty"` // an object with PEFT's names
	Metadata        map[string]string `json:"metadata,omitempty"`
}

// Limits of a request.
const (
	mostSuffix        = 64
	mostMetadata      = 16
	mostMetadataKey   = 64
	mostMetadataValue = 512
	mostEpochs        = 1000
	mostBatch         = 1024
	mostFactor        = 1000 // of learning_rate_multiplier and beta
)

// check returns an error if the request is invalid for any job.
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
		if strings.HasPrefix(r.Suffix, lora.ReservedPrefix) {
			return invalid("suffix", "found %q; names that begin with %s are reserved", r.Suffix, lora.ReservedPrefix)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		if value := r.Metadata[key]; len(key) > mostMetadataKey || len(value) > mostMetadataValue {
			return invalid("metadata", "%.64q has %d bytes, and its value %d, at most %d and %d", key, len(key), len(value), mostMetadataKey, mostMetadataValue)
		}
	}
	return nil
}

// Defaults of a job.
const (
	normalEpochs  = 3
	normalRank    = 16
	normalTargets = "all-linear"
	normalBeta    = 0.1

	rateOfSupervised = 2e-4 // times learning_rate_multiplier
	rateOfDPO        = 5e-5
)

// normalBatch returns the default batch size: a thirty-second of the rows, from 1 to 16.
func normalBatch(rows int) int { return min(max(rows/32, 1), 16) }

// settle fills in the hyperparameters that the request omits.
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

// config returns the training configuration of a job, as for `lorafuse train`. It fails with
// ErrInvalid if the adapter settings of the request are invalid.
func (s *Service) config(j *Job) (*config.Config, error) {
	h := j.Settled
	h.settle(j.Request.Method, j.Rows)
	in := func(name string) string { return s.path(jobsDir, j.ID, name) }
	data := map[string]any{"train": in(trainingData), "format": "jsonl", "max_length": s.options.MaxLength}
	keys := map[string]any{
		"model": s.options.Model.Dir, "output_dir": in(outputDir), "task": "language", "seed": *j.Request.Seed,
		"data": data, "epochs": *h.Epochs, "batch_size": *h.BatchSize, "learning_rate": rateOfSupervised * *h.RateMultiplier,
		"save_steps": 0, "save_limit": 2, "log": map[string]any{"tensorboard": false, "plot": false},
	}
	if path, err := train.LatestCheckpoint(in(outputDir)); err != nil {
		return nil, err
	} else if path != "" {
		keys["resume"] = path
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

// adapter returns the adapter settings of the request, with defaults.
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
