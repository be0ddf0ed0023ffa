//go:build !purego

package tensor

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The register allocator does not know that AVX2 has half of the registers,
// and the assembler silently takes an AVX-512 encoding for the others.
func TestAVX2KernelsNeedNoMore(t *testing.T) {
	text, err := os.ReadFile("convert_amd64.s")
	require.NoError(t, err)
	functions := strings.Split(string(text), "\nTEXT ")
	more := regexp.MustCompile(`\b([XY](1[6-9]|2[0-9]|3[01])|Z[0-9]+|K[0-7])\b|\.(BCST|Z)\b|VMOVDQU(8|32|64)`)
	count := 0
	for _, f := range functions[1:] {
		if name, _, _ := strings.Cut(f, "("); strings.HasSuffix(name, "AVX2") {
			count++
			assert.Empty(t, more.FindString(f), name)
		}
	}
	assert.Equal(t, 2*11, count)
}

// Every kernel is called: the types without are those that AVX2 does not know.
func TestEveryTypeHasKernels(t *testing.T) {
	chosen := active
	defer func() { active = chosen }()
	for _, active = range available()[1:] {
		for _, d := range numbers {
			x := floats(1, group)
			want := group
			if d == F32 || active == avx2 && (d == U32 || d == I64 || d == U64) {
				want = 0
			}
			raw := make([]byte, bytesFor(group, d))
			assert.Equal(t, want, vectorNarrow(raw, x, d), "%v %v", active, d)
			assert.Equal(t, want, vectorWiden(x, raw, d), "%v %v", active, d)
		}
	}
}
