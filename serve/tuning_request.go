package serve

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/serve/web"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// jobRequest is the body of POST /v1/fine_tuning/jobs.
type jobRequest struct {
	Model           *string                    `json:"model"`
	TrainingFile    *string                    `json:"training_file"`
	ValidationFile  string                     `json:"validation_file"`
	Suffix          string                     `json:"suffix"`
	Seed            *int64                     `json:"seed" in:"0," expected:"a whole number, 0 or more"`
	Metadata        map[string]string          `json:"metadata" expected:"an object whose values are strings"`
	Adapter         adapterSettings            `json:"lora"`
	Integrations    []any                      `json:"integrations" expected:"a list"`
	Hyperparameters map[string]json.RawMessage `json:"hyperparameters" expected:"an object"`
	Method          *jobMethod                 `json:"method"`
}

// jobMethod is the training method of a job.
type jobMethod struct {
	Type          string         `json:"type" one:"supervised|dpo|reinforcement"`
	Supervised    *methodRequest `json:"supervised"`
	DPO           *methodRequest `json:"dpo"`
	Reinforcement *methodRequest `json:"reinforcement"`
}

type methodRequest struct {
	Hyperparameters map[string]json.RawMessage `json:"hyperparameters" expected:"an object"`
}

// adapterSettings is the JSON object of the field lora.
type adapterSettings json.RawMessage

// maxAdapter is the maximum size of the adapter settings in bytes.
const maxAdapter = 64 << 10

// DecodeField implements web.FieldDecoder.
func (a *adapterSettings) DecodeField(d *web.Decoder, name string, raw json.RawMessage) {
	var object map[string]any
	if json.Unmarshal(raw, &object) != nil {
		d.Unexpected(name, raw, "an object with the keys of PEFT's LoraConfig")
	}
	if len(raw) > maxAdapter {
		d.Fault(name, "has %d bytes, at most %d", len(raw), maxAdapter)
	}
	*a = adapterSettings(raw)
}

// request returns the request for package tuning.
func (b *jobRequest) request() (r tuning.Request, err error) {
	switch {
	case b.Model == nil:
		return r, web.Faulty("model", "is missing")
	case b.TrainingFile == nil:
		return r, web.Faulty("training_file", "is missing")
	case len(b.Integrations) > 0:
		return r, web.Faulty("integrations", "not supported")
	}
	r = tuning.Request{
		Model: *b.Model, TrainingFile: *b.TrainingFile, ValidationFile: b.ValidationFile, Suffix: b.Suffix,
		Method: tuning.Supervised, Adapter: json.RawMessage(b.Adapter), Metadata: b.Metadata,
	}
	if b.Seed != nil {
		seed := uint64(*b.Seed)
		r.Seed = &seed
	}
	if b.Method == nil {
		r.Hyperparameters, err = hyperparametersOf("hyperparameters.", b.Hyperparameters, r.Method)
		return r, err
	}
	if len(b.Hyperparameters) > 0 {
		return r, web.Faulty("hyperparameters", "is given besides method, expected within that")
	}
	r.Method = tuning.Method(b.Method.Type)
	switch b.Method.Type {
	case "":
		return r, web.Faulty("method.type", "is missing, expected %s or %s", tuning.Supervised, tuning.DPO)
	case "reinforcement":
		return r, web.Faulty("method.type", "reinforcement is not supported, expected %s or %s", tuning.Supervised, tuning.DPO)
	}
	var given map[string]json.RawMessage
	for _, x := range []struct {
		name    string
		details *methodRequest
	}{{string(tuning.Supervised), b.Method.Supervised}, {string(tuning.DPO), b.Method.DPO}, {"reinforcement", b.Method.Reinforcement}} {
		switch {
		case x.details == nil:
		case x.name != b.Method.Type:
			return r, web.Faulty("method."+x.name, "is given besides type %s", b.Method.Type)
		default:
			given = x.details.Hyperparameters
		}
	}
	r.Hyperparameters, err = hyperparametersOf("method."+b.Method.Type+".hyperparameters.", given, r.Method)
	return r, err
}

// hyperparametersRequest holds the hyperparameters of a job. Each is optional and may be "auto".
type hyperparametersRequest struct {
	Epochs         *int     `json:"n_epochs" auto:"yes" in:"1," expected:"a whole number, 1 or more, or \"auto\""`
	BatchSize      *int     `json:"batch_size" auto:"yes" in:"1," expected:"a whole number, 1 or more, or \"auto\""`
	RateMultiplier *float64 `json:"learning_rate_multiplier" auto:"yes" in:"5e-324," expected:"a number above 0, or \"auto\""`
	Beta           *float64 `json:"beta" auto:"yes" in:"5e-324," expected:"a number above 0, or \"auto\""`
}

// hyperparametersOf decodes the hyperparameters of a method.
func hyperparametersOf(within string, values map[string]json.RawMessage, m tuning.Method) (h tuning.Hyperparameters, err error) {
	known := []string{"n_epochs", "batch_size", "learning_rate_multiplier"}
	if m == tuning.DPO {
		known = append(known, "beta")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, name) {
			return h, web.Faulty(within+name, "is no hyperparameter of the method %s%s", m, suggest.DidYouMean(name, known))
		}
	}
	var r hyperparametersRequest
	if err := web.DecodeObject(&r, values, within); err != nil {
		return h, err
	}
	return tuning.Hyperparameters(r), nil
}
