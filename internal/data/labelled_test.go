package data

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tokenizer"
)

var _ TextTokenizer = (*tokenizer.Tokenizer)(nil)

func loadLabelled(t testing.TB, o Options, files ...string) (*Dataset, error) {
	var paths []string
	dir := t.TempDir()
	for i, text := range files {
		path := filepath.Join(dir, string(rune('a'+i))+".jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		paths = append(paths, path)
	}
	o.Rows = LabelledRows
	if o.Texts == nil {
		o.Texts = framed{}
	}
	return Load(t.Context(), paths, o)
}

// rowsWith makes rows of the labels, of texts that do not matter.
func rowsWith(labels ...string) string {
	var b strings.Builder
	for _, l := range labels {
		fmt.Fprintf(&b, `{"text": "t", "label": %s}`+"\n", l)
	}
	return b.String()
}

// TestLabelled: a row is one document, which counts once, with its class and the types
// of its tokens.
func TestLabelled(t *testing.T) {
	d, err := loadLabelled(t, Options{MaxLength: 6}, `{"text": "ab", "text_pair": "c", "label": "yes", "id": 3, "weight": null}
{"label": "no", "text_pair": "longer", "text": "d"}
`, `{"text": "e", "label": "yes", "text_pair": null}`)
	require.NoError(t, err)
	assert.Equal(t, Stats{Files: 2, Rows: 3, Tokens: 15, LossTokens: 3, Longest: 6, Truncated: 1}, d.Stats())
	assert.Equal(t, 1, d.Texts())
	assert.Equal(t, []string{"no", "yes"}, d.Classes())

	l, err := NewLoader(d, LoaderConfig{BatchSize: 2})
	require.NoError(t, err)
	assert.Equal(t, []int{2, 1}, []int{l.LossTokens(0), l.LossTokens(1)})
	assert.Equal(t, []int{12, 2}, []int{l.MaxTokens(), l.MaxDocuments()})
	b, err := l.Batch(0, 0)
	require.NoError(t, err)
	assert.Equal(t, append([]int32{bos}, idsOf("ab", eos, 'c', eos, bos, 'd', eos, 'l', 'o', eos)...), b.Tokens())
	assert.Equal(t, []int32{0, 6, 12}, b.Starts)
	assert.Equal(t, []int32{0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1}, b.Types())
	assert.Equal(t, []int32{1, 0}, b.Classes())
	assert.Equal(t, 2, b.LossTokens)
	require.NoError(t, l.Fill(b, 1, 0), "into the memory of another")
	assert.Equal(t, []int32{0, 0, 0}, b.Types())
	assert.Equal(t, []int32{1}, b.Classes())
	assert.Empty(t, b.Values())
}

// TestLabels checks the labels that rows get.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		name    string
		o       Options
		labels  []string
		classes []string
		ids     []int32
		values  []float32
	}{
		{"names", Options{}, []string{`"b"`, `"a"`, `"b"`}, []string{"a", "b"}, []int32{1, 0, 1}, nil},
		{"names in an order", Options{Classes: []string{"c", "b", "a"}}, []string{`"b"`, `"a"`}, []string{"c", "b", "a"}, []int32{1, 2}, nil},
		{"ids", Options{}, []string{"2", "0"}, []string{"0", "1", "2"}, []int32{2, 0}, nil},
		{"ids of names", Options{Classes: []string{"x", "y"}}, []string{"1", "1"}, []string{"x", "y"}, []int32{1, 1}, nil},
		{"an escape", Options{}, []string{`"\u0061"`, `"b"`}, []string{"a", "b"}, []int32{0, 1}, nil},
		{"lists of names", Options{Problem: MultiLabel}, []string{`["b", "a"]`, `[]`, `["c"]`}, []string{"a", "b", "c"}, nil, []float32{1, 1, 0, 0, 0, 0, 0, 0, 1}},
		{"lists of ids", Options{Problem: MultiLabel}, []string{`[0, 1]`, `[2]`, `[]`}, []string{"0", "1", "2"}, nil, []float32{1, 1, 0, 0, 0, 1, 0, 0, 0}},
		{"ids of two", Options{Problem: MultiLabel}, []string{`[0, 1]`, `[1]`}, []string{"0", "1"}, nil, []float32{1, 1, 0, 1}},
		{"zeros and ones", Options{Problem: MultiLabel}, []string{`[0, 1, 1]`, `[0, 0, 0]`}, []string{"0", "1", "2"}, nil, []float32{0, 1, 1, 0, 0, 0}},
		{"zeros and ones of names", Options{Problem: MultiLabel, Classes: []string{"x", "y"}}, []string{`[0, 1]`, `[1, 0]`}, []string{"x", "y"}, nil, []float32{0, 1, 1, 0}},
		{"with a point", Options{Problem: MultiLabel}, []string{`[0, 1]`, `[]`, `[1.0, 0]`}, []string{"0", "1"}, nil, []float32{0, 1, 0, 0, 1, 0}},
		{"one class or none", Options{Problem: MultiLabel}, []string{`["spam"]`, `[]`}, []string{"spam"}, nil, []float32{1, 0}},
		{"none at all", Options{Problem: MultiLabel, Classes: []string{"x", "y"}}, []string{`[]`}, []string{"x", "y"}, nil, []float32{0, 0}},
		{"numbers", Options{Problem: Regression}, []string{"2.5", "-1", "3e2"}, nil, nil, []float32{2.5, -1, 300}},
	} {
		d, err := loadLabelled(t, c.o, rowsWith(c.labels...))
		require.NoError(t, err, c.name)
		assert.Equal(t, c.classes, d.Classes(), c.name)
		l, err := Sequential(d, 8)
		require.NoError(t, err)
		b, err := l.Batch(0, 0)
		require.NoError(t, err)
		assert.Equal(t, append([]int32{}, c.ids...), append([]int32{}, b.Classes()...), c.name)
		assert.Equal(t, append([]float32{}, c.values...), append([]float32{}, b.Values()...), c.name)
		assert.Equal(t, make([]int32, 3*len(c.labels)), b.Types())
	}
}

func TestLabelledErrors(t *testing.T) {
	xyz := Options{Classes: []string{"negative", "neutral", "positive"}}
	multi, number := Options{Problem: MultiLabel}, Options{Problem: Regression}
	for _, c := range []struct {
		name, file string
		o          Options
		is         error
		text       string
	}{
		{"no label", `{"text": "a"}`, xyz, ErrKeys, `a.jsonl:1: found ["text"], expected label too`},
		{"another's label", `{"text": "a", "labels": 1}`, xyz, ErrKeys, `expected label too ("labels" is called "label" here)`},
		{"a slip", `{"text": "a", "lable": 1}`, xyz, ErrKeys, `did you mean "label"?`},
		{"no text", `{"sentence": "a", "label": 1}`, xyz, ErrKeys, `found ["sentence" "label"], expected text and label, and perhaps text_pair ("sentence" is called "text" here)`},
		{"another's pair", `{"premise": "a", "hypothesis": "b", "label": 1}`, xyz, ErrKeys, `("premise" is called "text" here)`},
		{"half of another's pair", `{"text": "a", "hypothesis": "b", "label": 1}`, xyz, ErrIgnored, `hypothesis: found text, which would be ignored: it is called "text_pair" here`},
		{"half of a question", `{"text": "a", "sentence": "b", "label": 1}`, xyz, ErrIgnored, `it is called "text_pair" here`},
		{"beside a null", `{"text": "a", "text_pair": null, "sentence2": "b", "label": 1}`, xyz, ErrIgnored, `sentence2: found text, which would be ignored: it is called "text_pair" here`},
		{"two labels", `{"text": "a", "label": 1, "labels": [1]}`, xyz, ErrIgnored, `labels: found an array, which would be ignored: what is to be learned is called "label" here`},
		{"a weight", `{"text": "a", "label": 1, "weight": 2}`, xyz, ErrIgnored, "weight: found a number"},
		{"text is a list", `{"text": ["a"], "label": 1}`, xyz, ErrFormat, "text: found an array, expected text"},
		{"pair is a number", `{"text": "a", "text_pair": 1, "label": 1}`, xyz, ErrFormat, "text_pair: found a number, expected text"},
		{"some pairs", `{"text": "a", "label": 1}` + "\n" + `{"text": "a", "text_pair": "b", "label": 1}`, xyz, ErrMixed, "a.jsonl:2: found text, text_pair and label, expected text and label as in line 1"},
		{"a bad text", `{"text": "\u0000", "label": 1}`, xyz, nil, "a.jsonl:1: text: tokenizer: a zero byte"},
		{"too long", `{"text": "ab", "text_pair": "cd", "label": 1}`, Options{MaxLength: 6, OnTooLong: RefuseLong}, ErrTooLong, "text and text_pair: more tokens than the 6"},
		{"types", `{"text": "a", "text_pair": "b", "label": 1}`, Options{Types: 1}, ErrTokenID, "text and text_pair: token of type 1, expected 0 to 0 as the model has them"},
		{"not JSON lines", rowsWith("1"), Options{Format: FormatText}, ErrFormat, "with text, perhaps text_pair, and label"},

		{"unknown class", rowsWith(`"neutral"`, `"postive"`), xyz, ErrLabel, `a.jsonl:2: label: found "postive", expected "negative", "neutral" or "positive", did you mean "positive"?`},
		{"one of many", rowsWith(`"x"`), Options{Classes: strings.Split("a b c d e f g h i", " ")}, ErrLabel, `found "x", expected one of 9 classes`},
		{"id too large", rowsWith("3"), xyz, ErrLabel, "a.jsonl:1: label: found the id 3, expected 0 to 2, as there are 3 classes"},
		{"negative id", rowsWith("0", "1", "-1"), Options{}, ErrLabel, "a.jsonl:3: label: found the id -1, expected 0 to 1"},
		{"huge id", rowsWith("99999999999999999999"), Options{}, ErrLabel, "found the id 100000000000000000000, expected less than 65536"},
		{"mixed", rowsWith(`"a"`, "1"), Options{}, ErrMixed, "a.jsonl:2: label: found ids of classes, expected names of classes as in "},
		{"one class", rowsWith(`"a"`, `"a"`), Options{}, ErrLabel, "a.jsonl: label: found 1 classes in all rows, expected 2"},
		{"an empty name", rowsWith(`""`), Options{}, ErrLabel, "label: found an empty name"},
		{"null", rowsWith("null"), Options{}, ErrFormat, "label: found null, expected the name or the id of a class"},
		{"a fraction", rowsWith("0.5"), Options{}, ErrFormat, "label: found 0.5, expected the name or the id of a class (numbers are learned with the problem regression)"},
		{"a list", rowsWith("[1]"), Options{}, ErrFormat, "found an array, expected the name or the id of a class (several classes"},
		{"true", rowsWith("true"), Options{}, ErrFormat, "label: found true, expected the name or the id of a class (true and false are no numbers here"},
		{"an object", rowsWith("{}"), Options{}, ErrFormat, "found an object"},
		{"NaN", rowsWith("NaN"), number, ErrFormat, "not valid JSON at byte"},

		{"no list", rowsWith(`"a"`), multi, ErrFormat, `label: found text "a", expected a list of names or of ids of classes, or of 0 or 1 for each class (one class of each text`},
		{"an id", rowsWith("1"), multi, ErrFormat, "label: found 1, expected a list"},
		{"a name twice", rowsWith(`["a", "a"]`), multi, ErrLabel, `found the class "a" twice`},
		{"an id twice", rowsWith(`[1, 1]`, `[2]`), multi, ErrLabel, `found the class "1" twice (lists of 0 or 1 for each class have 3 elements in all rows)`},
		{"mixed in a list", rowsWith(`["a", 1]`), multi, ErrMixed, "label[1]: found ids of classes beside names of classes"},
		{"mixed lists", rowsWith(`[1, 0]`, `["a"]`), multi, ErrMixed, "a.jsonl:2: label: found names of classes, expected ids"},
		{"lists in lists", rowsWith(`[[1]]`), multi, ErrFormat, "label[0]: found an array"},
		{"null in a list", rowsWith(`[null]`), multi, ErrFormat, "label[0]: found null, expected the name or the id of a class"},
		{"a half", rowsWith(`[0.5]`), multi, ErrFormat, "label[0]: found 0.5, expected"},
		{"a short list", rowsWith(`[1.0, 0.0]`, `[1.0]`), multi, ErrLabel, "a.jsonl:2: label: found a list of 1 numbers, expected 0 or 1 for each of 2 classes"},
		{"two of one", rowsWith(`[1.0, 2]`), multi, ErrLabel, "label[1]: found 2, expected 0 or 1"},
		{"true in a list", rowsWith(`[true]`), multi, ErrFormat, "label[0]: found true"},
		{"no class", rowsWith(`[]`), multi, ErrLabel, "found 0 classes in all rows, expected 1"},

		{"no number", rowsWith(`"1.5"`), number, ErrFormat, `label: found text "1.5", expected a number of float32`},
		{"null for a number", rowsWith("null"), number, ErrFormat, "label: found null, expected a number"},
		{"too large", rowsWith("1e39"), number, ErrFormat, "label: found 1e39, expected a number of float32"},
		{"larger", rowsWith("1e999"), number, ErrFormat, "label: found 1e999"},
		{"false", rowsWith("false"), number, ErrFormat, "found false, expected a number of float32 (true and false"},

		{"classes twice", rowsWith("1"), Options{Classes: []string{"a", "a"}}, ErrOption, `classes: found "a" twice`},
		{"a class without a name", rowsWith("1"), Options{Classes: []string{"a", ""}}, ErrOption, "classes: found an empty name"},
		{"classes of numbers", rowsWith("1"), Options{Problem: Regression, Classes: []string{"a"}}, ErrOption, "classes: found 1 names, expected none with the problem regression"},
		{"no such problem", rowsWith("1"), Options{Problem: "single"}, ErrOption, `problem: found "single", expected single_label_classification`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := loadLabelled(t, c.o, c.file)
			require.ErrorContains(t, err, c.text)
			assert.NotContains(t, err.Error(), "\n")
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
	_, err := loadLabelled(t, Options{}, rowsWith(`"a"`), rowsWith("1"))
	require.ErrorContains(t, err, "b.jsonl:1: label: found ids of classes, expected names of classes as in ")
	require.ErrorContains(t, err, "a.jsonl:1")
	_, err = Load(t.Context(), []string{write(t, "a.jsonl", rowsWith("1"))}, Options{Rows: LabelledRows})
	require.ErrorContains(t, err, "text and label needs a tokenizer")
}

// TestLabelledDigest: the digest covers everything that is learned.
func TestLabelledDigest(t *testing.T) {
	seen := map[[32]byte]string{}
	for name, load := range map[string]func() (*Dataset, error){
		"names":   func() (*Dataset, error) { return loadLabelled(t, Options{}, rowsWith(`"a"`, `"b"`)) },
		"swapped": func() (*Dataset, error) { return loadLabelled(t, Options{}, rowsWith(`"b"`, `"a"`)) },
		"called":  func() (*Dataset, error) { return loadLabelled(t, Options{}, rowsWith(`"a"`, `"c"`)) },
		"lists": func() (*Dataset, error) {
			return loadLabelled(t, Options{Problem: MultiLabel}, rowsWith(`["a"]`, `["b"]`))
		},
		"both": func() (*Dataset, error) {
			return loadLabelled(t, Options{Problem: MultiLabel}, rowsWith(`["a"]`, `["b", "a"]`))
		},
		"typed": func() (*Dataset, error) {
			return loadLabelled(t, Options{}, `{"text": "", "text_pair": "", "label": "a"}`+"\n"+`{"text": "", "text_pair": "", "label": "b"}`)
		},
	} {
		d, err := load()
		require.NoError(t, err)
		require.Empty(t, seen[d.Digest()], name)
		seen[d.Digest()] = name
	}
}

// TestLabelledTokenizer: texts are joined and cut by the tokenizer of the model.
func TestLabelledTokenizer(t *testing.T) {
	tok, err := tokenizer.Load("../../testdata/tokenizers/wordpiece")
	require.NoError(t, err)
	row, err := json.Marshal(map[string]any{"text": "the of and", "text_pair": "to in is that it", "label": 1})
	require.NoError(t, err)
	d, err := loadLabelled(t, Options{Texts: tok, MaxLength: 9, Types: 2}, string(row))
	require.NoError(t, err)
	l, err := Sequential(d, 1)
	require.NoError(t, err)
	b, err := l.Batch(0, 0)
	require.NoError(t, err)
	ids, types, cut, err := tok.EncodeJoined([]string{"the of and", "to in is that it"}, 9)
	require.NoError(t, err)
	require.True(t, cut)
	require.Len(t, ids, 9)
	assert.Equal(t, ids, b.Tokens())
	assert.Equal(t, types, b.Types())
	_, err = loadLabelled(t, Options{Texts: tok, MaxLength: 2}, string(row))
	require.ErrorIs(t, err, tokenizer.ErrRoom)
	assert.ErrorContains(t, err, "a.jsonl:1: text and text_pair: no room for special tokens: found 2 tokens, expected at least the 3")
}

// FuzzLabelled: each row has a valid label for the problem, or there is a one-line error.
func FuzzLabelled(f *testing.F) {
	for _, labels := range []string{`"a" "b"`, "0 3", "1.5 -2", `[] ["a"]`, "[0,1] [1,1]", "[1.0] [0]", "NaN true", `[[]] {} [null]`, "1e999 -0"} {
		f.Add([]byte(rowsWith(strings.Fields(labels)...)), "a b", byte(len(labels)))
	}
	f.Add([]byte(`{"text": "a", "text_pair": "b", "label": "x", "weight": ""}`), "x y", byte(0))
	f.Fuzz(func(t *testing.T, lines []byte, classes string, which byte) {
		o, err := Options{Rows: LabelledRows, Texts: framed{}, Problem: Problem(Problems()[int(which)%3]), Classes: strings.Fields(classes)}.withDefaults()
		if err != nil {
			return
		}
		oneLine := func(err error) {
			if e, ok := err.(*Error); !ok || e.Kind == nil || strings.ContainsAny(e.Problem, "\n\r") {
				t.Fatalf("not a one-line *Error: %#v", err)
			}
		}
		var rows []*label
		for i, line := range strings.Split(string(lines), "\n") {
			r, err := (encoder{o}).parse([]byte(line), false)
			if err != nil {
				oneLine(err)
				continue
			}
			r.label.place = place{"f", i + 1, true}
			rows = append(rows, r.label)
		}
		if len(rows) == 0 {
			return
		}
		l, err := convertLabels(rows, o)
		if err != nil {
			oneLine(err)
			return
		}
		b := &Batch{}
		for row := range rows {
			l.add(b, row)
		}
		require.Contains(t, []int{0, len(rows)}, len(b.Classes()))
		require.Contains(t, []int{0, len(rows), len(rows) * len(l.classes)}, len(b.Values()))
		for _, id := range l.ids {
			require.Less(t, int(id), len(l.classes))
			require.GreaterOrEqual(t, id, int32(0))
		}
		for _, v := range b.Values() {
			require.True(t, o.Problem == Regression || v == 0 || v == 1)
		}
	})
}
