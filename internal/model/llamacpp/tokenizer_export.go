package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// Tokenizer returns the metadata of the tokenizer and of the chat template in a folder.
// rows is the number of the model's embeddings; ids without a token are marked as
// unused. eos lists the tokens that end a text. Errors: ErrUnsupported.
func Tokenizer(dir string, rows int, eos []int32) ([]gguf.KeyValue, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: a folder without tokenizer.json; AutoTokenizer.from_pretrained(…).save_pretrained(…) of transformers writes it", ErrUnsupported)
	} else if err != nil {
		return nil, err
	}
	t := &tokenizerJSON{}
	if err := json.Unmarshal(raw, t); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	if t.Model.Type != "BPE" {
		return nil, fmt.Errorf("tokenizer.json: %w: model %q; supported: BPE", ErrUnsupported, t.Model.Type)
	}
	v := &vocabulary{json: t}
	if err := v.read(rows, tok); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if err := v.template(dir); err != nil {
		return nil, err
	}
	v.special(tok, eos)
	return v.keys, nil
}

// vocabulary collects the metadata of a tokenizer.
type vocabulary struct {
	json *tokenizerJSON
	keys []gguf.KeyValue
}

func (v *vocabulary) add(key string, value any) {
	v.keys = append(v.keys, gguf.KeyValue{Key: "tokenizer." + key, Value: value})
}

// read adds tokens, their types, and merges or scores.
func (v *vocabulary) read(rows int, tok *tokenizer.Tokenizer) error {
	t := v.json
	ids := map[string]int{}
	if err := json.Unmarshal(t.Model.Vocab, &ids); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	merges, err := readMerges(t.Model.Merges)
	if err != nil {
		return err
	}
	tokens, types := make([]string, rows), make([]int32, rows)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), tokenUnused
	}
	set := func(id int, text string, kind int32) error {
		if id < 0 || id >= rows {
			return fmt.Errorf("%w: token %q has id %d, the model has %d embeddings", ErrUnsupported, text, id, rows)
		}
		tokens[id], types[id] = text, kind
		return nil
	}
	for text, id := range ids {
		kind := int32(tokenNormal)
		if t.Model.ByteFallback && isByte(text) {
			kind = tokenByte
		}
		if err := set(id, text, kind); err != nil {
			return err
		}
	}
	added, err := v.addedTokens(tok, ids)
	if err != nil {
		return err
	}
	for _, a := range added {
		kind := int32(tokenUserDefined)
		if a.Special {
			kind = tokenControl
		}
		if t.Model.UnkToken != nil && a.Content == *t.Model.UnkToken {
			kind = tokenUnknown
		}
		if err := set(a.ID, a.Content, kind); err != nil {
			return err
		}
	}
	if t.Model.ByteFallback {
		return v.sentencePiece(tokens, types, ids, merges)
	}
	name, err := preOf(t)
	if err != nil {
		return err
	}
	v.add("ggml.model", "gpt2")
	v.add("ggml.pre", name)
	v.add("ggml.tokens", tokens)
	v.add("ggml.token_type", types)
	lines := make([]string, len(merges))
	for i, m := range merges {
		lines[i] = m[0] + " " + m[1]
	}
	v.add("ggml.merges", lines)
	return nil
}

// addedTokens returns the added tokens of tokenizer.json, and those that only the
// configuration has.
func (v *vocabulary) addedTokens(tok *tokenizer.Tokenizer, ids map[string]int) ([]addedToken, error) {
	added := v.json.AddedTokens
	known := map[string]bool{}
	for _, a := range added {
		known[a.Content] = true
	}
	for _, text := range tok.SpecialTokens() {
		if id, ok := tok.TokenID(text); ok && !known[text] {
			known[text] = true
			added = append(added, addedToken{ID: int(id), Content: text, Special: true})
		}
	}
	for _, a := range added {
		if id, ok := ids[a.Content]; ok && id != a.ID {
			return nil, fmt.Errorf("%w: token %q has ids %d and %d", ErrUnsupported, a.Content, id, a.ID)
		}
	}
	return added, nil
}

// isByte reports whether a token is that of a byte: <0x00> to <0xFF>.
func isByte(text string) bool {
	hex, ok := strings.CutPrefix(text, "<0x")
	if !ok || len(hex) != 3 || hex[2] != '>' {
		return false
	}
	_, err := strconv.ParseUint(hex[:2], 16, 8)
	return err == nil
}

// readMerges reads merges in both forms of tokenizer.json: pairs, and texts with a space.
func readMerges(raw json.RawMessage) ([][2]string, error) {
	var pairs [][2]string
	if json.Unmarshal(raw, &pairs) == nil {
		return pairs, nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return nil, fmt.Errorf("merges: %w", err)
	}
	pairs = make([][2]string, len(lines))
	for i, line := range lines {
		a, b, ok := strings.Cut(line, " ")
		if !ok {
			return nil, fmt.Errorf("merges: %w: found %q, expected two tokens", ErrUnsupported, line)
		}
		pairs[i] = [2]string{a, b}
	}
	return pairs, nil
}

// sentencePiece adds a tokenizer of SentencePiece's BPE, which has scores in place of
// merges: the sooner a token is merged, the higher.
func (v *vocabulary) sentencePiece(tokens []string, types []int32, ids map[string]int, merges [][2]string) error {
	scores := make([]float32, len(tokens))
	merged := map[string]bool{}
	for rank, m := range merges {
		text := m[0] + m[1]
		id, ok := ids[text]
		if !ok || merged[text] {
			continue
		}
		merged[text] = true
		scores[id] = -float32(rank)
	}
	prefix, err := spacePrefix(v.json)
	if err != nil {
		return err
	}
	v.add("ggml.model", "llama")
	v.add("ggml.pre", "default")
	v.add("ggml.tokens", tokens)
	v.add("ggml.scores", scores)
	v.add("ggml.token_type", types)
	v.add("ggml.add_space_prefix", prefix)
	return nil
}

// spacePrefix reports whether a space is put before a text.
func spacePrefix(t *tokenizerJSON) (bool, error) {
	prefix, spaces := false, false
	for _, s := range append(flatten(t.Normalizer), flatten(t.PreTokenizer)...) {
		text, isRegex := s.regex()
		switch {
		case s.Type == "Prepend" && s.Prepend == "▁":
			prefix = true
		case s.Type == "Replace" && text == " " && !isRegex && s.Content != nil && *s.Content == "▁":
			spaces = true
		case s.Type == "Metaspace" && s.Replacement == "▁":
			prefix, spaces = s.PrependScheme != "never", true
		case s.Type == "Split" && text == " " && !isRegex: // after Replace there is none
		default:
			return false, fmt.Errorf("%w: step %s of a tokenizer with byte_fallback", ErrUnsupported, s.Type)
		}
	}
	if !spaces {
		return false, fmt.Errorf("%w: a tokenizer with byte_fallback that keeps spaces", ErrUnsupported)
	}
	return prefix, nil
}

// special adds the ids of special tokens, and whether texts begin and end with one.
func (v *vocabulary) special(tok *tokenizer.Tokenizer, eos []int32) {
	for _, s := range []struct {
		key string
		id  func() (int32, bool)
	}{{"bos", tok.BOS}, {"eos", tok.EOS}, {"unknown", tok.UNK}, {"padding", tok.PAD}} {
		id, ok := s.id()
		if !ok && s.key == "eos" && len(eos) > 0 {
			id, ok = eos[0], true
		}
		if ok {
			v.add("ggml."+s.key+"_token_id", uint32(id))
		}
	}
	around, err := tok.Encode("", true) // the special tokens around a text
	has := func(id int32, ok bool) bool { return err == nil && ok && slices.Contains(around, id) }
	first, last := has(tok.BOS()), has(tok.EOS())
	if first && last && len(around) == 1 { // one token that begins texts is also the end
		last = false
	}
	v.add("ggml.add_bos_token", first)
	v.add("ggml.add_eos_token", last)
}

// template adds the chat templates of the folder.
func (v *vocabulary) template(dir string) error {
	t, err := chat.Load(dir)
	if errors.Is(err, chat.ErrNoTemplate) {
		return nil
	} else if err != nil {
		return err
	}
	sources := t.Sources()
	if text, ok := sources["default"]; ok {
		v.add("chat_template", text)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if name != "default" {
			names = append(names, name)
			v.add("chat_template."+name, sources[name])
		}
	}
	if len(names) > 0 {
		v.add("chat_templates", names)
	}
	return nil
}
