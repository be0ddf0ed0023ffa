package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Architecture is a family of models. It is registered under the name that config.json lists
// in architectures or, in diffusers, in _class_name.
type Architecture struct {
	ModelType string
	// Whole makes Read read all of config.json, because the file lacks the keys that language
	// models share. Models of diffusers always lack them.
	Whole bool
	// Read reads the settings of the family; the shared ones are already in c.
	Read func(c *Config, f *Fields) Family
}

// bodySuffix is the suffix of architectures without a head, classifierSuffix the suffix of
// classifiers.
const (
	bodySuffix       = "Model"
	classifierSuffix = "ForSequenceClassification"
)

// isBody reports whether an architecture is a body. GPT-2 with its head is called a model too.
func isBody(name string) bool {
	return strings.HasSuffix(name, bodySuffix) && !strings.HasSuffix(name, headedModel)
}

const headedModel = "LMHeadModel"

var registry = map[string]Architecture{}

// Register registers an architecture. It panics if the name is taken.
func Register(name string, a Architecture) {
	if _, ok := registry[name]; ok {
		panic("model: " + name + " is registered twice")
	}
	registry[name] = a
}

// registerDecoder registers the classes of a decoder: with a language head, without a head,
// and with a classification head.
func registerDecoder(modelType string, read func(*Config, *Fields) Family, names ...string) {
	for _, name := range names {
		Register(name, Architecture{ModelType: modelType, Read: read})
	}
}

// ofType returns the default architecture of a model_type: the language model, otherwise the
// body, otherwise the empty string.
func ofType(modelType string) string {
	body := ""
	for _, name := range Architectures() {
		switch {
		case registry[name].ModelType != modelType:
		case strings.HasSuffix(name, "ForCausalLM"), strings.HasSuffix(name, "ForConditionalGeneration"), strings.HasSuffix(name, headedModel):
			return name
		case isBody(name):
			body = name
		}
	}
	return body
}

// ClassifierOf returns the classifier architecture of a model_type, or the empty string.
func ClassifierOf(modelType string) string {
	for _, name := range Architectures() {
		if registry[name].ModelType == modelType && strings.HasSuffix(name, classifierSuffix) {
			return name
		}
	}
	return ""
}

// alternatives lists the supported architectures of the same kind as an unsupported one:
// autoencoders, transformers of diffusers, or text models with the same head.
func alternatives(name string, diffusers bool) []string {
	isVAE := func(name string) bool { return strings.HasPrefix(name, "Autoencoder") || strings.HasPrefix(name, "VQ") }
	isText := func(name string) bool { return registry[name].ModelType != "" }
	names := slices.DeleteFunc(Architectures(), func(n string) bool {
		if isText(n) {
			return diffusers
		}
		return !diffusers || isVAE(n) != isVAE(name)
	})
	if diffusers {
		return names
	}
	for _, head := range heads {
		same := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(n, head) })
		if strings.HasSuffix(name, head) && len(same) > 0 {
			return same
		}
	}
	return names
}

// heads are the ends of names of architectures of transformers, which tell their kinds.
var heads = []string{"ForCausalLM", headedModel, "ForConditionalGeneration", "ForMaskedLM", classifierSuffix, "EncoderModel", "TextModel", bodySuffix}

// stem returns the name of an architecture in lower case without its head.
func stem(name string) string {
	for _, head := range heads {
		if s, ok := strings.CutSuffix(name, head); ok {
			name = s
			break
		}
	}
	return strings.ToLower(name)
}

// nearest returns the few names that resemble name most: those whose names begin alike, the
// shortest first.
func nearest(name string, names []string) []string {
	const most = 5
	want := stem(name)
	alike := func(other string) int {
		n, other := 0, stem(other)
		for n < min(len(want), len(other)) && want[n] == other[n] {
			n++
		}
		return n
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(alike(b), alike(a)), cmp.Compare(len(a), len(b)))
	})
	return names[:min(most, len(names))]
}

// ModelTypeOf returns the model_type of an architecture. It is empty for models of diffusers and
// for names that are not registered.
func ModelTypeOf(architecture string) string { return registry[architecture].ModelType }

// Architectures lists the supported architectures.
func Architectures() []string { return slices.Sorted(maps.Keys(registry)) }
