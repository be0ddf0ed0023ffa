package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// wrappedText is the name of the text model within a multimodal model.
const wrappedText = "language_model"

// registerWrapper registers the classes of a multimodal model. Only its text model is built;
// its modules keep their names in the whole model, because adapters use them.
func registerWrapper(modelType string, read func(*Config, *Fields) Family, names ...string) {
	for _, name := range names {
		Register(name, Architecture{ModelType: modelType, Whole: true, Read: read})
	}
}

// IsWrapped reports whether the model is the text model of a multimodal one.
func (c *Config) IsWrapped() bool {
	d, ok := c.Family.(interface{ enclosed() bool })
	return ok && d.enclosed()
}

// wrapped reads text_config, the settings of the text model of a multimodal model. modelType
// is its type if it names none.
func (f *Fields) wrapped(c *Config, modelType string) Family {
	const key = "text_config"
	if !f.Has(key) {
		f.Fail(key, "nothing", "an object")
		return nil
	}
	text := f.Object(key)
	family := f.textModel(c, text, text.String("model_type", modelType))
	if text.err != nil && f.err == nil {
		f.err = fmt.Errorf("%s: %w", key, text.err)
	}
	const stored = "quantization_config"
	if text.Has(stored) && !f.Has(stored) {
		f.values[stored] = text.values[stored]
	}
	return family
}

// wrappedOrFlat reads the settings of the text model from text_config or, as earlier versions
// of transformers store them for some models, from the top level.
func (f *Fields) wrappedOrFlat(c *Config, modelType string) Family {
	if f.Has("text_config") {
		return f.wrapped(c, modelType)
	}
	return f.textModel(c, f, modelType)
}

// textModel reads the text model of a multimodal model. Tokens and the type of weights that
// the whole model names take precedence. Its key tie_word_embeddings is left to the caller.
func (f *Fields) textModel(c *Config, text *Fields, modelType string) Family {
	defaults, ok := textDefaults[modelType]
	if !ok {
		text.Unsupported("model_type", modelType, slices.Sorted(maps.Keys(textDefaults)))
	}
	text.addDefaults(defaults)
	text.shared(c)
	if text.err != nil {
		return nil
	}
	family := registry[ofType(modelType)].Read(c, text)
	family.(interface{ enclose() }).enclose()
	c.DType = cmp.Or(f.String("dtype", f.String("torch_dtype", "")), c.DType)
	if ids := f.IDs("eos_token_id"); len(ids) > 0 {
		c.EOS = ids
	}
	if ids := f.IDs("bos_token_id"); len(ids) > 0 {
		c.BOS = ids[0]
	}
	return family
}

// tie ties the head if the whole model says so, and by default. As transformers has it, a
// default does not tie a head that the checkpoint stores with other values.
func (f *Fields) tie(c *Config, byDefault bool) {
	const key = "tie_word_embeddings"
	c.TiedEmbeddings = f.Bool(key, byDefault)
	c.tiedUnlessStored = c.TiedEmbeddings && !f.Has(key)
}

// tieEither ties the head if the whole model or the text model says so.
func (f *Fields) tieEither(c *Config) {
	c.TiedEmbeddings = c.TiedEmbeddings || f.Bool("tie_word_embeddings", false)
}

// addDefaults adds the keys of a JSON object that are missing.
func (f *Fields) addDefaults(object string) {
	defaults := map[string]json.RawMessage{}
	if f.err != nil || json.Unmarshal([]byte(object), &defaults) != nil {
		return
	}
	maps.Copy(defaults, f.values)
	f.values = defaults
}

// textDefaults are the defaults of transformers for required keys, by model_type. Files often
// leave them out of text_config.
var textDefaults = map[string]string{
	"llama": `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
		"bos_token_id": 1, "eos_token_id": 2}`,
	"granite": `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}`,
	"cohere":  cohereDefaults,
	"cohere2": cohereDefaults,
	"mistral": `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
		"num_key_value_heads": 8, "max_position_embeddings": 131072, "bos_token_id": 1, "eos_token_id": 2}`,
	"ministral3": `{"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34, "num_attention_heads": 32,
		"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144, "bos_token_id": 1, "eos_token_id": 2}`,
	"qwen2": `{"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
		"num_key_value_heads": 32, "max_position_embeddings": 32768}`,
	"qwen2_vl_text":   qwenVLDefaults,
	"qwen2_5_vl_text": qwenVLDefaults,
	"qwen3_vl_text": `{"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
		"num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128000}`,
	"qwen3_vl_moe_text": `{"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
		"num_key_value_heads": 16, "max_position_embeddings": 128000}`,
	"gemma4_text": `{"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
		"num_key_value_heads": 4, "head_dim": 256}`,
	"gemma3_text": `{"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
		"num_key_value_heads": 4, "head_dim": 256}`,
}

const cohereDefaults = `{"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64}`

const qwenVLDefaults = `{"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
	"num_key_value_heads": 8, "max_position_embeddings": 32768}`
