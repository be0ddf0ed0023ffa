package gemm_test

import (
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
	assert.Equal(t, have[len(have)-1], best)
	for _, isa := range have {
		got, err := gemm.Select(isa.String())
		require.NoError(t, err)
		assert.Equal(t, isa, got)
	}
	_, err = gemm.Select("sse9")
	require.ErrorIs(t, err, gemm.ErrUnknownISA)
	assert.Contains(t, err.Error(), "LORAFUSE_CPU=sse9: unknown instruction set (supported: portable")
	for _, isa := range []gemm.ISA{gemm.AVX2, gemm.AVX512} {
		if isa > best {
			_, err = gemm.Select(isa.String())
			require.ErrorIs(t, err, gemm.ErrUnsupportedISA)
		}
	}
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
	assert.Equal(t, "ISA(7)", gemm.ISA(7).String())
}

func TestNilPool(t *testing.T) {
	var p *pool.Pool
	c := gemm.Call{M: 1, N: 1, C: make([]float32, 1), Pairs: []gemm.Pair{
		{A: gemm.Of([]float32{3}, 1), B: gemm.Of([]float32{4}, 1), K: 1, Alpha: 2}}}
	gemm.New(p).Run(&c)
	assert.Equal(t, []float32{24}, c.C)
}
