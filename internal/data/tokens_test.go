package data

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// longs returns an I64 tensor for a test file.
func longs(name string, shape []int, values ...int64) safetensors.Entry {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return safetensors.Entry{Name: name, DType: safetensors.I64, Shape: shape, Data: raw}
}

func tokenFile(t *testing.T, entries ...safetensors.Entry) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.safetensors")
	require.NoError(t, safetensors.WriteFile(path, entries, nil))
	return path
}

// TestRecordedTrace reads the batches of a recorded PEFT run.
func TestRecordedTrace(t *testing.T) {
	path := "../../testdata/lm/llama/train/lora/batches.safetensors"
	d, err := Load(t.Context(), []string{path}, Options{MaxLength: 1024, VocabSize: 512})
	require.NoError(t, err)
	batches, rows := d.Recorded()
	assert.Equal(t, []int{5, 4, 20}, []int{batches, rows, d.Len()})

	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	ids, err := readInts(f, "input_ids")
	require.NoError(t, err)
	given, err := readInts(f, "labels")
	require.NoError(t, err)

	// Whole steps have 4 rows; the same steps are split into 2 micro-batches of 2.
	for _, split := range []int{1, 2} {
		l, err := NewLoader(d, LoaderConfig{BatchSize: 4 / split, Accumulation: split, Shuffle: true, Seed: 1})
		require.NoError(t, err)
		assert.Equal(t, 5, l.StepsPerEpoch())
		for step := range 12 {
			total := 0
			for micro := range split {
				b, err := l.Batch(step, micro)
				require.NoError(t, err)
				require.Equal(t, 4/split, b.Rows())
				at := 0
				for row := range b.Rows() {
					from := ((step%5)*4 + micro*b.Rows() + row) * 24
					n := d.Length(from / 24)
					require.Equal(t, ids.values[from:from+n], b.Tokens()[at:at+n])
					for i := range n - 1 {
						require.Equal(t, given.values[from+i+1], b.Labels()[at+i])
					}
					require.Equal(t, int32(Ignore), b.Labels()[at+n-1])
					at += n
				}
				total += b.LossTokens
			}
			want := 0
			for row := range 4 {
				for i := 1; i < 24; i++ {
					if given.values[((step%5)*4+row)*24+i] != Ignore {
						want++
					}
				}
			}
			assert.Equal(t, want, total)
			assert.Equal(t, want, l.LossTokens(step))
		}
	}
}

func TestTokenRows(t *testing.T) {
	shape := []int{3, 4}
	d, err := Load(t.Context(), []string{tokenFile(t,
		longs("input_ids", shape, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 7, 8),
		longs("labels", shape, -100, 2, 3, 4, 5, 6, -100, -100, -100, -100, -100, 8),
		longs("attention_mask", shape, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1),
	)}, Options{})
	require.NoError(t, err)
	assert.Equal(t, []Row{
		{[]int32{1, 2, 3, 4}, []int32{Ignore, 2, 3, 4}},
		{[]int32{5, 6}, []int32{5, 6}},      // right padding
		{[]int32{7, 8}, []int32{Ignore, 8}}, // left padding
	}, rowsOf(d))

	raw := safetensors.Entry{Name: "input_ids", DType: safetensors.I32, Shape: []int{1, 2}, Data: []byte{1, 0, 0, 0, 2, 0, 0, 0}}
	d, err = Load(t.Context(), []string{tokenFile(t, raw)}, Options{})
	require.NoError(t, err)
	assert.Equal(t, []Row{{[]int32{1, 2}, []int32{1, 2}}}, rowsOf(d), "without labels every token counts")

	d, err = Load(t.Context(), []string{tokenFile(t,
		longs("input_ids", []int{2, 2}, 1, 2, 3, 4), longs("labels", []int{2, 2}, -100, -100, 3, 4))}, Options{})
	require.NoError(t, err)
	assert.Equal(t, 1, d.Len())
	assert.Equal(t, 1, d.Stats().Empty)
}

func TestTokenErrors(t *testing.T) {
	two := []int{1, 2}
	good := longs("input_ids", two, 1, 2)
	for _, c := range []struct {
		name    string
		entries []safetensors.Entry
		o       Options
		is      error
		text    string
	}{
		{"no ids", []safetensors.Entry{longs("labels", two, 1, 2)}, Options{}, ErrKeys, "tensor input_ids is missing"},
		{"a slip", []safetensors.Entry{good, longs("label", two, 1, 2)}, Options{}, ErrKeys, `found tensor "label", expected input_ids, labels and attention_mask alone, did you mean "labels"?`},
		{"type", []safetensors.Entry{{Name: "input_ids", DType: safetensors.U8, Shape: two, Data: []byte{1, 2}}}, Options{}, ErrFormat, "input_ids: type U8, expected I64 or I32"},
		{"one dimension", []safetensors.Entry{longs("input_ids", []int{2}, 1, 2)}, Options{}, ErrFormat, "input_ids: shape [2], expected [rows, length] or [batches, rows, length]"},
		{"shapes differ", []safetensors.Entry{good, longs("labels", []int{2, 1}, 1, 2)}, Options{}, ErrFormat, "labels: shape [2 1], expected [1 2]"},
		{"shifted labels", []safetensors.Entry{longs("input_ids", []int{2, 2}, 1, 2, 3, 4), longs("labels", []int{2, 2}, 1, 2, 4, -100)}, Options{}, ErrFormat, "t.safetensors: row 1: label 4 of token 0, whose id is 3"},
		{"vocabulary", []safetensors.Entry{good}, Options{VocabSize: 2}, ErrTokenID, "row 0: token id 2, expected 0 to 1"},
		{"negative", []safetensors.Entry{longs("input_ids", two, 1, -1)}, Options{}, ErrTokenID, "token id -1"},
		{"huge", []safetensors.Entry{longs("input_ids", two, 1, 1<<40)}, Options{}, ErrTokenID, "element 1 is 1099511627776"},
		{"a hole in the mask", []safetensors.Entry{longs("input_ids", []int{1, 3}, 1, 2, 3), longs("attention_mask", []int{1, 3}, 1, 0, 1)}, Options{}, ErrFormat, "row 0: attention_mask: found 1 at token 2"},
		{"a mask of 2", []safetensors.Entry{good, longs("attention_mask", two, 2, 2)}, Options{}, ErrFormat, "attention_mask: found 2 at token 0"},
		{"no rows", []safetensors.Entry{longs("input_ids", []int{0, 4})}, Options{}, ErrEmpty, "no rows"},
		{"no loss", []safetensors.Entry{good, longs("labels", two, -100, -100)}, Options{}, ErrEmpty, "all 1 texts are too short"},
		{"cut off", []safetensors.Entry{longs("input_ids", []int{1, 3}, 1, 2, 3), longs("labels", []int{1, 3}, -100, -100, 3)}, Options{MaxLength: 2}, ErrNoTarget, "row 0: cut to max_length 2"},
		{"too long", []safetensors.Entry{longs("input_ids", []int{1, 3}, 1, 2, 3)}, Options{MaxLength: 2, OnTooLong: RefuseLong}, ErrTooLong, "row 0: 3 tokens, expected at most max_length 2"},
		{"a batch without loss", []safetensors.Entry{longs("input_ids", []int{2, 1, 2}, 1, 2, 1, 2), longs("labels", []int{2, 1, 2}, 1, 2, -100, -100)}, Options{}, ErrNoTarget, "batch 1 holds no token that carries loss"},
		{"a batch that drops", []safetensors.Entry{longs("input_ids", []int{1, 1, 3}, 1, 2, 3)}, Options{MaxLength: 2, OnTooLong: Drop}, ErrTooLong, "batch 0, row 0: longer than max_length 2, and no row"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(t.Context(), []string{tokenFile(t, c.entries...)}, c.o)
			require.ErrorIs(t, err, c.is)
			assert.Contains(t, err.Error(), c.text)
			assert.Contains(t, err.Error(), "t.safetensors")
		})
	}

	recorded := tokenFile(t, longs("input_ids", []int{1, 1, 2}, 1, 2))
	free := tokenFile(t, good)
	for _, files := range [][]string{{recorded, free}, {free, recorded}, {recorded, recorded}} {
		_, err := Load(t.Context(), files, Options{})
		require.ErrorIs(t, err, ErrMixed)
	}
	_, err := Load(t.Context(), []string{write(t, "t.safetensors", "junk")}, Options{})
	assert.ErrorContains(t, err, "t.safetensors")
}
