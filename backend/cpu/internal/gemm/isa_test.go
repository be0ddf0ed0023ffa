package gemm_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

func TestSelect(t *testing.T) {
	have := gemm.Supported()
	require.Equal(t, gemm.Portable, have[0])
	best, err := gemm.Select("")
	require.NoError(t, err)
	if best != gemm.AVX512 || have[len(have)-1] != gemm.AVX512BF16 { // which is slower where tiles may not be used
		assert.Equal(t, have[len(have)-1], best)
	}
	for _, isa := range have {
		got, err := gemm.Select(isa.String())
		require.NoError(t, err)
		assert.Equal(t, isa, got)
	}
	_, err = gemm.Select("sse9")
	require.ErrorIs(t, err, gemm.ErrUnknownISA)
	assert.Contains(t, err.Error(), "LORAFUSE_CPU=sse9: unknown instruction set (supported: portable")
	for isa := gemm.Portable; isa <= gemm.NEON; isa++ {
		if !slices.Contains(have, isa) {
			_, err = gemm.Select(isa.String())
			require.ErrorIs(t, err, gemm.ErrUnsupportedISA)
		}
	}
}

// Kernels must run on every arm64 machine, which may lack the bfloat16 instructions. (An
// emulator of such a machine is the other test: scripts/arm64.sh.)
func TestNEONKernelsNeedNoBF16(t *testing.T) {
	text, err := os.ReadFile("kernels_arm64.s")
	require.NoError(t, err)
	assert.NotRegexp(t, `// bf[a-z0-9]+ `, string(text))
}

func TestEnvironment(t *testing.T) {
	best, _ := gemm.Select("")
	for value, want := range map[string]gemm.ISA{"": best, "portable": gemm.Portable, "sse9": best} {
		t.Setenv(gemm.EnvCPU, value)
		assert.Equal(t, want.String(), gemm.New(nil).Isa(), value)
	}
}

func TestNames(t *testing.T) {
	assert.Equal(t, "F32 F16 BF16", gemm.F32.String()+" "+gemm.F16.String()+" "+gemm.BF16.String())
	assert.Equal(t, "ISA(6)", gemm.ISA(6).String())
}

func TestNilPool(t *testing.T) {
	var p *pool.Pool
	c := gemm.Call{M: 1, N: 1, C: make([]float32, 1), Pairs: []gemm.Pair{
		{A: gemm.Of([]float32{3}, 1), B: gemm.Of([]float32{4}, 1), K: 1, Alpha: 2}}}
	gemm.New(p).Run(&c)
	assert.Equal(t, []float32{24}, c.C)
}
