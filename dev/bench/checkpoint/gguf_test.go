package checkpoint

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gguf reads a file as its specification says, and no better than that.
type gguf struct {
	t  *testing.T
	b  []byte
	at int
}

func (g *gguf) u32() uint32 {
	require.LessOrEqual(g.t, g.at+4, len(g.b))
	g.at += 4
	return binary.LittleEndian.Uint32(g.b[g.at-4:])
}

func (g *gguf) u64() int { return int(uint64(g.u32()) | uint64(g.u32())<<32) }

func (g *gguf) string() string {
	n := g.u64()
	g.at += n
	return string(g.b[g.at-n : g.at])
}

func (g *gguf) value(kind uint32) any {
	switch kind {
	case kindString:
		return g.string()
	case kindArray:
		of, n := g.u32(), g.u64()
		all := make([]any, n)
		for i := range all {
			all[i] = g.value(of)
		}
		return all
	default:
		return g.u32()
	}
}

func TestGGUF(t *testing.T) {
	s, err := ByName("tiny")
	require.NoError(t, err)
	for format, size := range map[Format]func(n int) int{BF16: func(n int) int { return 2 * n }, Q8: func(n int) int { return n / 32 * 34 }} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		require.NoError(t, s.WriteGGUF(path, format))
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "GGUF", string(raw[:4]))
		g := &gguf{t, raw, 4}
		assert.EqualValues(t, 3, g.u32())
		tensors, values := g.u64(), map[string]any{}
		for range g.u64() {
			key := g.string()
			values[key] = g.value(g.u32())
		}
		assert.Equal(t, "llama", values["general.architecture"])
		assert.EqualValues(t, s.Layers, values["llama.block_count"])
		assert.EqualValues(t, s.HeadDim(), values["llama.rope.dimension_count"])
		assert.Len(t, values["tokenizer.ggml.tokens"], s.Vocab)
		assert.Len(t, values["tokenizer.ggml.token_type"], s.Vocab)
		end, weights := 0, 0
		for range tensors {
			name, elements := g.string(), 1
			dims := make([]int, g.u32())
			for i := range dims {
				dims[i] = g.u64()
				elements *= dims[i]
			}
			kind, offset := Format(g.u32()), g.u64()
			assert.Equal(t, end, offset, "one behind the other")
			if len(dims) == 1 {
				assert.Equal(t, f32, kind)
				end = aligned(offset + 4*elements)
				continue
			}
			assert.Equal(t, format, kind, name)
			weights += elements
			end = aligned(offset + size(elements))
			if name == "blk.1.ffn_down.weight" {
				assert.Equal(t, []int{s.Inter, s.Hidden}, dims, "the inner axis first")
			}
		}
		assert.Equal(t, s.LinearParams()+s.Vocab*s.Hidden, weights)
		assert.Equal(t, aligned(g.at)+end, len(raw), "nothing is left over")
	}
}

func TestGGUFRefuses(t *testing.T) {
	s, err := ByName("tiny")
	require.NoError(t, err)
	s.Inter = 100
	assert.ErrorContains(t, s.WriteGGUF(filepath.Join(t.TempDir(), "x"), BF16), "rows of blocks of 32")
	s, err = ByName("tiny")
	require.NoError(t, err)
	assert.ErrorContains(t, s.WriteGGUF(filepath.Join(t.TempDir(), "no", "x"), BF16), "checkpoint: open")
	assert.Equal(t, "q8_0", Q8.String())
	assert.Equal(t, "Format(7)", Format(7).String())
}
