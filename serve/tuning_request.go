package serve

import (
	"maps"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// tuningRequest reads the request to create a job.
func tuningRequest(f *fields) tuning.Request {
	r := tuning.Request{
		Model: f.text("model"), TrainingFile: f.text("training_file"), ValidationFile: f.text("validation_file"), Suffix: f.text("suffix"),
		Method: tuning.Supervised, Adapter: f.raw("lora"),
	}
	for _, name := range []string{"model", "training_file"} {
		if !f.has(name) {
			f.fault(name, "is missing")
		}
	}
	if n, ok := f.wholeNumber("seed", "a whole number, 0 or more", 0, math.MaxInt64); ok {
		seed := uint64(n)
		r.Seed = &seed
	}
	f.into("metadata", &r.Metadata, "an object whose values are strings")
	if f.into("lora", &map[string]any{}, "an object with the keys of PEFT's LoraConfig") && len(r.Adapter) > maxAdapter {
		f.fault("lora", "has %d bytes, at most %d", len(r.Adapter), maxAdapter)
	}
	if all := list[any](f, "integrations", "a list"); len(all) > 0 {
		f.fault("integrations", "not supported")
	}
	old := f.object("hyperparameters")
	if !f.has("method") {
		r.Hyperparameters = hyperparametersOf(old, tuning.Supervised)
		f.take(old)
		return r
	}
	if len(old.values) > 0 {
		f.fault("hyperparameters", "is given besides method, expected within that")
	}
	m := f.object("method")
	kind := m.choice("type", string(tuning.Supervised), string(tuning.DPO), "reinforcement")
	switch {
	case kind == "reinforcement":
		m.fault("type", "reinforcement is not supported, expected %s or %s", tuning.Supervised, tuning.DPO)
	case kind == "":
		m.fault("type", "is missing, expected %s or %s", tuning.Supervised, tuning.DPO)
	}
	r.Method = tuning.Method(kind)
	for _, other := range []string{string(tuning.Supervised), string(tuning.DPO), "reinforcement"} {
		if other != kind && m.has(other) {
			m.fault(other, "is given besides type %s", kind)
		}
	}
	details := m.object(kind)
	h := details.object("hyperparameters")
	r.Hyperparameters = hyperparametersOf(h, r.Method)
	details.take(h)
	m.take(details)
	f.take(m)
	return r
}

// maxAdapter is the maximum size of the adapter settings in bytes.
const maxAdapter = 64 << 10

// hyperparametersOf reads the hyperparameters of a job. Each is optional and may be "auto".
func hyperparametersOf(f *fields, m tuning.Method) tuning.Hyperparameters {
	known := []string{"n_epochs", "batch_size", "learning_rate_multiplier"}
	if m == tuning.DPO {
		known = append(known, "beta")
	}
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(known, name) {
			f.fault(name, "is no hyperparameter of the method %s%s", m, suggest.DidYouMean(name, known))
		}
	}
	return tuning.Hyperparameters{
		Epochs: wholeOrAuto(f, "n_epochs"), BatchSize: wholeOrAuto(f, "batch_size"),
		RateMultiplier: numberOrAuto(f, "learning_rate_multiplier"), Beta: numberOrAuto(f, "beta"),
	}
}

func isAuto(f *fields, name string) bool { return !f.has(name) || string(f.raw(name)) == `"auto"` }

func wholeOrAuto(f *fields, name string) *int {
	if isAuto(f, name) {
		return nil
	}
	if n, ok := f.wholeNumber(name, `a whole number, 1 or more, or "auto"`, 1, math.MaxInt32); ok {
		v := int(n)
		return &v
	}
	return nil
}

func numberOrAuto(f *fields, name string) *float64 {
	if isAuto(f, name) {
		return nil
	}
	var v float64
	if f.into(name, &v, `a number above 0, or "auto"`) {
		if v > 0 {
			return &v
		}
		f.unexpected(name, `a number above 0, or "auto"`)
	}
	return nil
}
