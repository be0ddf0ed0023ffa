package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// framed makes a token of each byte, between two others.
type framed struct{}

func (framed) EncodeWithin(text string, most int) ([]int32, bool, error) {
	if strings.Contains(text, "\x00") {
		return nil, false, errors.New("tokenizer: a zero byte")
	}
	letters, cut := idsOf(text), false
	if len(letters) > most-2 {
		letters, cut = letters[:most-2], true
	}
	return append(append([]int32{bos}, letters...), eos), cut, nil
}

// EncodeJoined adds the token at the end between two texts too, and truncates the last of them.
func (f framed) EncodeJoined(texts []string, most int) (ids, types []int32, cut bool, err error) {
	for i, text := range texts {
		part, short, err := f.EncodeWithin(text, most-len(ids)+min(i, 1))
		if err != nil {
			return nil, nil, false, err
		}
		part = part[min(i, 1):]
		ids, cut = append(ids, part...), cut || short
		types = append(types, slices.Repeat([]int32{int32(i)}, len(part))...)
	}
	return ids, types, cut, nil
}

func loadPairs(t *testing.T, o Options, files ...string) (*Dataset, error) {
	var paths []string
	for i, text := range files {
		path := filepath.Join(t.TempDir(), string(rune('a'+i))+".jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		paths = append(paths, path)
	}
	o.Rows, o.Texts = PairRows, framed{}
	return Load(t.Context(), paths, o)
}

// TestPairs: each text of a row is a document of a batch, and a row counts once.
func TestPairs(t *testing.T) {
	d, err := loadPairs(t, Options{MaxLength: 5}, `{"anchor": "ab", "positive": "c", "negative": "", "id": 3}
{"negative": "n", "positive": "longer", "anchor": "d"}
`, `{"anchor": "e", "positive": "f", "negative": "g"}`)
	require.NoError(t, err)
	assert.Equal(t, Stats{Files: 2, Rows: 3, Tokens: 29, LossTokens: 3, Longest: 5, Truncated: 1}, d.Stats())
	assert.Equal(t, 3, d.Len())
	assert.Equal(t, 3, d.Texts())
	assert.Equal(t, 11, d.Length(1))
	assert.Equal(t, idsOf("d", eos, bos, 'l', 'o', 'n', eos, bos, 'n', eos), d.Row(1).IDs[1:])

	l, err := NewLoader(d, LoaderConfig{BatchSize: 2})
	require.NoError(t, err)
	assert.Equal(t, 6, l.MaxDocuments())
	assert.Equal(t, 20, l.MaxTokens())
	assert.Equal(t, []int{2, 1}, []int{l.LossTokens(0), l.LossTokens(1)})
	b, err := l.Batch(0, 0)
	require.NoError(t, err)
	assert.Equal(t, []int32{0, 4, 7, 9, 12, 17, 20}, b.Starts)
	assert.Equal(t, 2, b.LossTokens)
	assert.Equal(t, masked(20), b.Labels())
	b, err = l.Batch(1, 0)
	require.NoError(t, err)
	assert.Equal(t, []int32{bos, 'e', eos, bos, 'f', eos, bos, 'g', eos}, b.Tokens())
}

// Rows are shuffled as a whole: the texts of a row stay together.
func TestPairsShuffled(t *testing.T) {
	var file strings.Builder
	for i := range 40 {
		fmt.Fprintf(&file, `{"anchor": "%s", "positive": "%c"}`+"\n", strings.Repeat(string(rune('0'+i)), 1+i%4), rune('0'+i))
	}
	d, err := loadPairs(t, Options{}, strings.NewReplacer(`\`, `\\`).Replace(file.String()))
	require.NoError(t, err)
	l, err := NewLoader(d, LoaderConfig{BatchSize: 4, Shuffle: true, LengthBucketing: true, Seed: 5})
	require.NoError(t, err)
	seen := map[int32]bool{}
	for step := range l.StepsPerEpoch() {
		b, err := l.Batch(step, 0)
		require.NoError(t, err)
		require.Equal(t, 8, b.Rows())
		for i := 0; i < b.Rows(); i += 2 {
			anchor, positive := b.Tokens()[b.Starts[i]+1], b.Tokens()[b.Starts[i+1]+1]
			seen[anchor] = true
			require.Equal(t, anchor, positive)
		}
	}
	require.Len(t, seen, 40)
}

func TestPairsErrors(t *testing.T) {
	const ok = `{"anchor": "a", "positive": "b"}` + "\n"
	for _, c := range []struct {
		name, file string
		o          Options
		is         error
		text       string
	}{
		{"no anchor", ok + `{"query": "a", "positive": "b"}`, Options{}, ErrKeys, `a.jsonl:2: found ["query" "positive"], expected anchor and positive, and perhaps negative ("query" is called "anchor" here)`},
		{"a slip", `{"anchor": "a", "positiv": "b"}`, Options{}, ErrKeys, `did you mean "positive"?`},
		{"rows of language", `{"text": "a"}`, Options{}, ErrKeys, `found ["text"], expected anchor and positive`},
		{"not text", `{"anchor": "a", "positive": ["b"]}`, Options{}, ErrFormat, "a.jsonl:1: positive: found an array, expected text"},
		{"null", `{"anchor": null, "positive": "b"}`, Options{}, ErrFormat, "anchor: found null, expected text"},
		{"a label", `{"anchor": "a", "positive": "b", "label": 0}`, Options{}, ErrIgnored, "label: found a number, which would be ignored: each row is a pair that belongs together"},
		{"other negatives", `{"anchor": "a", "positive": "b", "negatives": ["c"]}`, Options{}, ErrIgnored, `negatives: found an array, which would be ignored: it is called "negative" here`},
		{"some negatives", ok + `{"anchor": "a", "positive": "b", "negative": "c"}`, Options{}, ErrMixed, "a.jsonl:2: found anchor, positive and negative, expected anchor and positive as in line 1"},
		{"a bad text", `{"anchor": "a", "positive": "\u0000"}`, Options{}, nil, "a.jsonl:1: positive: tokenizer: a zero byte"},
		{"too long", `{"anchor": "abcd", "positive": "b"}`, Options{MaxLength: 4, OnTooLong: RefuseLong}, ErrTooLong, "anchor: more tokens than the 4"},
		{"all too long", `{"anchor": "abcd", "positive": "b"}`, Options{MaxLength: 4, OnTooLong: Drop}, ErrEmpty, "all 1 rows were left out"},
		{"ids", ok, Options{VocabSize: 50}, ErrTokenID, "token id 1000"},
		{"rows", ok, Options{Format: FormatText}, ErrFormat, "found the format text, expected rows (JSON, CSV or Parquet) with anchor, positive, and perhaps negative"},
	} {
		_, err := loadPairs(t, c.o, c.file)
		require.ErrorContains(t, err, c.text, c.name)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, c.name)
		}
	}
	_, err := loadPairs(t, Options{}, ok, `{"anchor": "a", "positive": "b", "negative": "c"}`)
	require.ErrorIs(t, err, ErrMixed)
	require.ErrorContains(t, err, "b.jsonl:1: found anchor, positive and negative, expected rows of 2 texts as in the files before")

	d, err := loadPairs(t, Options{}, ok+`{"anchor": "a", "positive": "b", "negative": null, "label": ""}`)
	require.NoError(t, err, "empty columns say nothing")
	require.Equal(t, 2, d.Len())
	other, err := loadPairs(t, Options{}, `{"anchor": "a", "positive": "b", "negative": "a"}`)
	require.NoError(t, err)
	require.NotEqual(t, d.Digest(), other.Digest())
}

func FuzzParsePair(f *testing.F) {
	f.Add([]byte(`{"anchor": "a", "positive": "b", "negative": null}`))
	f.Add([]byte(`{"anchor": "a", "negative": "b", "label": 1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := (encoder{Options{Rows: PairRows}}).parse(line, false)
		if err == nil {
			require.Len(t, r.texts, map[kind]int{kindPair: 2, kindTriple: 3}[r.kind])
		}
	})
}
