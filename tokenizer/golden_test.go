package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const fixtures = "../testdata/tokenizers"

func load(t testing.TB, path string) *Tokenizer {
	t.Helper()
	tok, err := Load(path)
	require.NoError(t, err)
	return tok
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v))
}

// streamed decodes ids one at a time.
func streamed(t testing.TB, tok *Tokenizer, ids []int32, skipSpecial bool) string {
	t.Helper()
	s, text := tok.NewStream(skipSpecial), ""
	for _, id := range ids {
		part, err := s.Push(id)
		require.NoError(t, err)
		text += part
	}
	return text + s.Flush()
}

// The rows were made by transformers.
func TestFixtures(t *testing.T) {
	for _, name := range []string{"llama3", "qwen2", "wordpiece"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(fixtures, name)
			tok := load(t, dir)
			var rows []struct {
				Text    string
				IDs     []int32
				Decoded string
			}
			readJSON(t, filepath.Join(dir, "golden.json"), &rows)
			require.NotEmpty(t, rows)
			for _, row := range rows {
				ids, err := tok.Encode(row.Text, true)
				require.NoError(t, err)
				assert.Equal(t, row.IDs, ids, "text %q", row.Text)
				text, err := tok.Decode(row.IDs, false)
				require.NoError(t, err)
				assert.Equal(t, row.Decoded, text, "ids of %q", row.Text)
				assert.Equal(t, row.Decoded, streamed(t, tok, row.IDs, false))
			}
		})
	}
}

// TestDiffusionFixtures: what transformers makes of prompts with the tokenizers of T5 (Unigram)
// and CLIP (BPE of words), whose rows are padded to 77 tokens.
func TestDiffusionFixtures(t *testing.T) {
	for _, name := range []string{"tokenizer-t5", "tokenizer-clip"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../testdata/dit", name)
			tok := load(t, dir)
			var rows []struct {
				Text string
				IDs  []int32
			}
			readJSON(t, filepath.Join(dir, "golden.json"), &rows)
			require.NotEmpty(t, rows)
			for _, row := range rows {
				ids, cut, err := tok.EncodeWithin(row.Text, 77)
				require.NoError(t, err)
				assert.False(t, cut)
				if name == "tokenizer-clip" {
					pad, ok := tok.PAD()
					require.True(t, ok)
					for len(ids) < 77 {
						ids = append(ids, pad)
					}
				}
				assert.Equal(t, row.IDs, ids, "text %q", row.Text)
			}
		})
	}
}

// TestFamilies compares with Hugging Face tokenizers on some 2,000 texts of mixed scripts for
// one small tokenizer of each kind; scripts/make_tokenizer_goldens.py made both.
func TestFamilies(t *testing.T) {
	dir := filepath.Join(fixtures, "families")
	var texts []string
	readJSON(t, filepath.Join(dir, "texts.json"), &texts)
	files, err := filepath.Glob(filepath.Join(dir, "*.golden.json"))
	require.NoError(t, err)
	require.Greater(t, len(files), 20)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".golden.json")
		t.Run(name, func(t *testing.T) {
			tok := load(t, filepath.Join(dir, name+".json"))
			var golden struct {
				Rows      [][2]json.RawMessage
				Checksums []byte
				Decodings []byte
			}
			readJSON(t, file, &golden)
			require.Len(t, golden.Checksums, 2*len(texts))
			for i, row := range golden.Rows {
				var want []int32
				require.NoError(t, json.Unmarshal(row[0], &want))
				ids, err := tok.Encode(texts[i], true)
				require.NoError(t, err)
				assert.Equal(t, want, ids, "text %q", texts[i])
			}
			wrong := 0
			for i, text := range texts {
				ids, err := tok.Encode(text, true)
				require.NoError(t, err)
				decoded, err := tok.Decode(ids, false)
				require.NoError(t, err)
				skipped, err := tok.Decode(ids, true)
				require.NoError(t, err)
				require.Equal(t, decoded, streamed(t, tok, ids, false), "streaming %q", text)
				sum := checksum(ids, decoded, skipped)
				if sum != binary.LittleEndian.Uint16(golden.Checksums[2*i:]) {
					if wrong++; wrong <= 10 {
						t.Errorf("text %q: ids %v, decoded %q, without specials %q", text, ids, decoded, skipped)
					}
				}
			}
			assert.Zero(t, wrong, "of %d texts", len(texts))
			checkDecodings(t, tok, golden.Decodings)
		})
	}
}

func checksum(ids []int32, decoded, skipped string) uint16 {
	var b []byte
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	b = append(append(append(append(b, '\n'), decoded...), '\n'), skipped...)
	return uint16(crc32.ChecksumIEEE(b))
}

// checkDecodings decodes sequences of arbitrary ids, many of which are no text at all.
func checkDecodings(t *testing.T, tok *Tokenizer, want []byte) {
	require.Len(t, want, 400)
	x := int64(1)
	for length := 1; length <= 200; length++ {
		var ids []int32
		for range 1 + length%13 {
			x = (x*1103515245 + 12345) % (1 << 31)
			ids = append(ids, int32((x>>8)%int64(tok.VocabSize())))
		}
		decoded, err := tok.Decode(ids, false)
		require.NoError(t, err)
		skipped, err := tok.Decode(ids, true)
		require.NoError(t, err)
		require.Equal(t, decoded, streamed(t, tok, ids, false))
		require.Equal(t, binary.LittleEndian.Uint16(want[2*length-2:]), checksum(ids, decoded, skipped),
			"ids %v: decoded %q, without specials %q", ids, decoded, skipped)
	}
}
