package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	tokenizerFile = "tokenizer.json"
	configFile    = "tokenizer_config.json"
	specialFile   = "special_tokens_map.json" // used by older models instead of the configuration
)

// sentencePieceFiles are the names that models of SentencePiece have in folders of models: those of
// Llama, DeBERTa and XLM-RoBERTa.
var sentencePieceFiles = []string{"tokenizer.model", "spm.model", "sentencepiece.bpe.model"}

// Load reads a tokenizer from a tokenizer.json, or from the folder that contains it. A CLIP
// or Qwen2 folder may contain vocab.json and merges.txt instead. Load applies the
// tokenizer_config.json in the same folder as transformers does: special tokens, added
// tokens, clean_up_tokenization_spaces, and add_bos_token and add_eos_token for the classes
// that use them (Llama, Gemma, Cohere, GPT-NeoX).
//
// Errors wrap [ErrFormat], [ErrUnsupported] or the errors of package os.
func Load(path string) (*Tokenizer, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	} else if info.IsDir() {
		path = filepath.Join(path, tokenizerFile)
	}
	data, missing := os.ReadFile(path)
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: %w", missing)
	}
	config, err := readOptional(filepath.Join(filepath.Dir(path), configFile))
	if err != nil {
		return nil, err
	}
	special, err := readOptional(filepath.Join(filepath.Dir(path), specialFile))
	if err != nil {
		return nil, err
	}
	if missing != nil {
		data, err = readVocabulary(filepath.Dir(path), config)
		if err != nil {
			return nil, fmt.Errorf("tokenizer %s: %w", filepath.Dir(path), err)
		}
		if data == nil {
			for _, name := range sentencePieceFiles {
				if _, err := os.Stat(filepath.Join(filepath.Dir(path), name)); err == nil {
					return nil, fmt.Errorf("tokenizer: found only %s: AutoTokenizer.from_pretrained(…).save_pretrained(…) of transformers makes %s of it: %w", name, tokenizerFile, missing)
				}
			}
			return nil, fmt.Errorf("tokenizer: %w", missing)
		}
	}
	t, err := parse(data, config, special)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", path, err)
	}
	return t, nil
}

// readOptional reads a file. It returns nil if the file does not exist.
func readOptional(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return data, nil
}

// Parse returns a tokenizer from the contents of tokenizer.json and, unless it is empty,
// of tokenizer_config.json.
func Parse(tokenizerJSON, configJSON []byte) (*Tokenizer, error) {
	return parse(tokenizerJSON, configJSON, nil)
}

func parse(tokenizerJSON, configJSON, specialJSON []byte) (*Tokenizer, error) {
	var f struct {
		Version       string          `json:"version"`
		AddedTokens   []addedToken    `json:"added_tokens"`
		Normalizer    json.RawMessage `json:"normalizer"`
		PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
		PostProcessor json.RawMessage `json:"post_processor"`
		Decoder       json.RawMessage `json:"decoder"`
		Model         json.RawMessage `json:"model"`
	}
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return nil, malformed("%s: %v", tokenizerFile, err)
	}
	if f.Version != "" && f.Version != "1.0" {
		return nil, unsupported("version of "+tokenizerFile, f.Version, "1.0")
	}
	c, err := readConfig(configJSON, specialJSON)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	if t.model, err = readModel(f.Model); err != nil {
		return nil, err
	}
	if t.normalizer, err = readNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if t.preTokenizer, err = readPreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	post, err := readPostProcessor(f.PostProcessor)
	if err != nil {
		return nil, err
	}
	if t.decoders, err = readDecoders(f.Decoder); err != nil {
		return nil, err
	}
	t.added = newAddedVocabulary(c.addedTokens(f.AddedTokens), t.model, t.normalizer)
	t.size = t.model.size()
	for content := range t.added.byContent {
		if _, ok := t.model.id(content); !ok {
			t.size++
		}
	}
	if err := c.apply(t); err != nil {
		return nil, err
	}
	if own, err := c.template(t); err != nil {
		return nil, err
	} else if own != nil {
		post = own
	}
	if t.single, err = layoutOf(post, 1); err != nil {
		return nil, err
	}
	t.pair, t.pairErr = layoutOf(post, 2)
	return t, nil
}
