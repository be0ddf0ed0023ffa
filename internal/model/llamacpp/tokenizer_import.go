package llamacpp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// tokenizerModels lists the tokenizers that are read.
var tokenizerModels = []string{"gpt2", "llama"}

// tokenizerFiles adds the files of the tokenizer and the chat template of a GGUF file.
func tokenizerFiles(f *gguf.File, files map[string][]byte) error {
	kind, err := f.Text("tokenizer.ggml.model")
	if err != nil {
		return err
	}
	if !slices.Contains(tokenizerModels, kind) {
		return fmt.Errorf("%w: tokenizer.ggml.model %q%s; supported: %s", ErrUnsupported, kind, suggest.DidYouMean(kind, tokenizerModels), strings.Join(tokenizerModels, ", "))
	}
	r := &tokenizerReader{file: f, json: &tokenizerJSON{Version: "1.0"}}
	if r.tokens, err = gguf.Array[string](f, "tokenizer.ggml.tokens"); err != nil {
		return err
	}
	if r.types, err = r.tokenTypes(); err != nil {
		return err
	}
	if kind == "gpt2" {
		err = r.bytes()
	} else {
		err = r.sentencePiece()
	}
	if err != nil {
		return err
	}
	config := r.special()
	for name, content := range map[string]any{"tokenizer.json": r.json, "tokenizer_config.json": config} {
		if files[name], err = json.Marshal(content); err != nil {
			return err
		}
	}
	if text, err := f.Text("tokenizer.chat_template"); err == nil {
		files["chat_template.jinja"] = []byte(text)
	}
	return nil
}

// tokenizerReader makes tokenizer.json.
type tokenizerReader struct {
	file   *gguf.File
	json   *tokenizerJSON
	tokens []string
	types  []int32
	bos    bool // texts begin with it unless the file says otherwise
}

// tokenTypes returns the types of the tokens: normal without the key.
func (r *tokenizerReader) tokenTypes() ([]int32, error) {
	const key = "tokenizer.ggml.token_type"
	if !r.file.Has(key) {
		return slices.Repeat([]int32{tokenNormal}, len(r.tokens)), nil
	}
	types, err := gguf.Array[int32](r.file, key)
	if err == nil && len(types) != len(r.tokens) {
		err = fmt.Errorf("%w: %s has %d entries, expected one for each of %d tokens", gguf.ErrValue, key, len(types), len(r.tokens))
	}
	return types, err
}

// vocabulary adds the tokens, except for unused ones, and lists the added ones.
func (r *tokenizerReader) vocabulary() (ids map[string]int, err error) {
	ids = map[string]int{}
	for id, text := range r.tokens {
		kind := r.types[id]
		if _, twice := ids[text]; twice || kind == tokenUnused {
			continue
		}
		ids[text] = id
		if kind == tokenControl || kind == tokenUserDefined || kind == tokenUnknown {
			r.json.AddedTokens = append(r.json.AddedTokens, addedToken{ID: id, Content: text, Special: kind != tokenUserDefined})
		}
	}
	r.json.Model.Vocab, err = json.Marshal(ids)
	return ids, err
}

// bytes reads a tokenizer of bytes, such as GPT-2's.
func (r *tokenizerReader) bytes() error {
	const key = "tokenizer.ggml.pre"
	name, err := r.file.Text(key)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(pres, func(p pre) bool { return p.name == name || slices.Contains(p.aliases, name) })
	if at < 0 {
		var names []string
		for _, p := range pres {
			names = append(append(names, p.name), p.aliases...)
		}
		return fmt.Errorf("%w: %s %q%s; supported: %s", ErrUnsupported, key, name, suggest.DidYouMean(name, names), strings.Join(names, ", "))
	}
	p := pres[at]
	r.bos = p.whole
	t, yes, no := r.json, true, false
	sequence := &step{Type: "Sequence"}
	for _, s := range p.steps {
		switch s {
		case digitsStep:
			sequence.Pretokenizers = append(sequence.Pretokenizers, &step{Type: "Digits", IndividualDigits: &yes})
		case gpt2Step, bytesStep:
			regex := s == gpt2Step
			sequence.Pretokenizers = append(sequence.Pretokenizers, &step{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &yes, UseRegex: &regex})
		default:
			sequence.Pretokenizers = append(sequence.Pretokenizers, &step{Type: "Split", Pattern: map[string]any{"Regex": s}, Behavior: "Isolated", Invert: &no})
		}
	}
	t.PreTokenizer = sequence
	if p.composed {
		t.Normalizer = &step{Type: "NFC"}
	}
	t.Decoder = &step{Type: "ByteLevel", AddPrefixSpace: &yes, TrimOffsets: &yes, UseRegex: &yes}
	if _, err := r.vocabulary(); err != nil {
		return err
	}
	merges, err := gguf.Array[string](r.file, "tokenizer.ggml.merges")
	if err != nil {
		return err
	}
	pairs := make([][2]string, len(merges))
	for i, m := range merges {
		a, b, ok := strings.Cut(m, " ")
		if !ok {
			return fmt.Errorf("%w: tokenizer.ggml.merges: found %q, expected two tokens", gguf.ErrValue, m)
		}
		pairs[i] = [2]string{a, b}
	}
	t.Model.Type, t.Model.IgnoreMerges = "BPE", p.whole
	t.Model.Merges, err = json.Marshal(pairs)
	return err
}

// sentencePiece reads a BPE tokenizer of SentencePiece. Tokens have scores; a merge is
// the sooner, the higher the score of its result.
func (r *tokenizerReader) sentencePiece() error {
	scores, err := gguf.Array[float32](r.file, "tokenizer.ggml.scores")
	if err != nil {
		return err
	}
	if len(scores) != len(r.tokens) {
		return fmt.Errorf("%w: tokenizer.ggml.scores has %d entries, expected one for each of %d tokens", gguf.ErrValue, len(scores), len(r.tokens))
	}
	ids, err := r.vocabulary()
	if err != nil {
		return err
	}
	type merge struct {
		pair  [2]string
		score float32
		a, b  int
	}
	var merges []merge
	for id, text := range r.tokens {
		if r.types[id] != tokenNormal || ids[text] != id {
			continue
		}
		for at := range text {
			a, okA := ids[text[:at]]
			b, okB := ids[text[at:]]
			if at > 0 && okA && okB {
				merges = append(merges, merge{[2]string{text[:at], text[at:]}, scores[id], a, b})
			}
		}
	}
	slices.SortStableFunc(merges, func(x, y merge) int {
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b))
	})
	pairs := make([][2]string, len(merges))
	for i := range merges {
		pairs[i] = merges[i].pair
	}
	t, space, zero, one := r.json, " ", 0, 1
	r.bos = true
	prefix := true
	if r.file.Has("tokenizer.ggml.add_space_prefix") {
		if prefix, err = r.file.Bool("tokenizer.ggml.add_space_prefix"); err != nil {
			return err
		}
	}
	mark := "▁"
	t.Normalizer = &step{Type: "Sequence"}
	if prefix {
		t.Normalizer.Normalizers = append(t.Normalizer.Normalizers, &step{Type: "Prepend", Prepend: mark})
	}
	t.Normalizer.Normalizers = append(t.Normalizer.Normalizers, &step{Type: "Replace", Pattern: map[string]any{"String": " "}, Content: &mark})
	t.Decoder = &step{Type: "Sequence", Decoders: []*step{
		{Type: "Replace", Pattern: map[string]any{"String": mark}, Content: &space}, {Type: "ByteFallback"}, {Type: "Fuse"},
	}}
	if prefix {
		t.Decoder.Decoders = append(t.Decoder.Decoders, &step{Type: "Strip", Content: &space, Start: &one, Stop: &zero})
	}
	t.Model.Type, t.Model.ByteFallback, t.Model.FuseUnk = "BPE", true, true
	if unk, ok := r.token("unknown"); ok {
		t.Model.UnkToken = &unk
	}
	t.Model.Merges, err = json.Marshal(pairs)
	return err
}

// token returns the special token of a name.
func (r *tokenizerReader) token(name string) (string, bool) {
	id, err := r.file.Int("tokenizer.ggml." + name + "_token_id")
	if err != nil || id < 0 || id >= len(r.tokens) {
		return "", false
	}
	return r.tokens[id], true
}

// special returns tokenizer_config.json, and adds the special tokens around texts.
func (r *tokenizerReader) special() map[string]any {
	config := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for key, name := range map[string]string{"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"} {
		if text, ok := r.token(name); ok {
			config[key] = text
		}
	}
	flag := func(key string, fallback bool) bool {
		if b, err := r.file.Bool(key); err == nil {
			return b
		}
		return fallback
	}
	var single, pair []any
	ids := map[string]any{}
	add := func(name string, kind int, wanted bool) {
		text, ok := r.token(name)
		if !ok || !wanted {
			return
		}
		id, _ := r.file.Int("tokenizer.ggml." + name + "_token_id") // token has read it
		ids[text] = map[string]any{"id": text, "ids": []int{id}, "tokens": []string{text}}
		part := map[string]any{"SpecialToken": map[string]any{"id": text, "type_id": kind}}
		if kind == 0 {
			single = append(single, part)
		}
		pair = append(pair, part)
	}
	bos, eos := flag("tokenizer.ggml.add_bos_token", r.bos), flag("tokenizer.ggml.add_eos_token", false)
	for kind, name := range []string{"A", "B"} {
		add("bos", kind, bos)
		part := map[string]any{"Sequence": map[string]any{"id": name, "type_id": kind}}
		if kind == 0 {
			single = append(single, part)
		}
		pair = append(pair, part)
		add("eos", kind, eos)
	}
	r.json.PostProcessor = map[string]any{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": ids}
	return config
}
