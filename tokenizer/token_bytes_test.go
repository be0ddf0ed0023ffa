package tokenizer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTokenBytes: of all families, what Decode writes for any tokens behind a first one
// are their bytes.
func TestTokenBytes(t *testing.T) {
	files, err := filepath.Glob(fixtures + "/families/*.json")
	require.NoError(t, err)
	counted := 0
	for _, file := range files {
		name := filepath.Base(file)
		if strings.Contains(name, ".golden.") || name == "texts.json" || name == "configs.json" {
			continue
		}
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		tok, err := Parse(raw, nil)
		require.NoError(t, err, name)
		bytes, err := tok.TokenBytes()
		if errors.Is(err, ErrUnsupported) {
			assert.Equal(t, "ctc.json", name)
			continue
		}
		require.NoError(t, err, name)
		counted++
		var ids []int32
		for id, b := range bytes {
			if len(b) > 0 {
				ids = append(ids, int32(id))
			}
		}
		require.NotEmpty(t, ids, name)
		for _, added := range tok.added.byContent {
			if int(added) < len(bytes) {
				require.Empty(t, bytes[added], name)
			}
		}
		first := -1 // whose text is whole, and not blank
		for _, id := range ids {
			if b := bytes[id]; utf8.Valid(b) && strings.TrimSpace(string(b)) != "" && !strings.Contains(string(b), " ") {
				first = int(id)
			}
		}
		if first < 0 {
			first = int(ids[len(ids)-1])
		}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				some := append([]int32{int32(first)}, rapid.SliceOfN(rapid.SampledFrom(ids), 1, 6).Draw(t, "ids")...)
				some = append(some, int32(first)) // the last is another matter
				alone, err := tok.Decode(some[:1], false)
				require.NoError(t, err)
				var want strings.Builder
				want.WriteString(alone)
				for _, id := range some[1:] {
					want.Write(bytes[id])
				}
				if !utf8.ValidString(want.String()) {
					return // a part of a character
				}
				got, err := tok.Decode(some, false)
				require.NoError(t, err)
				require.Equal(t, strings.TrimSuffix(want.String(), " "), strings.TrimSuffix(got, " "))
			})
		})
	}
	require.Greater(t, counted, 15)
}
