package safetensors

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		// What huggingface_hub 2.4.0's parse_size_to_int gives.
		"5GB": 5e9, "5gb": 5e9, " 5 GB ": 5e9, "\t3MB\n": 3e6, "1.5GB": 1.5e9, "1.1GB": 1.1e9, "0.07KB": 70, "4.35KB": 4350, "2.3TB": 2.3e12,
		"1_000MB": 1e9, "1e3KB": 1e6, "1E+3KB": 1e6, "1e-3GB": 1e6, "+5MB": 5e6, ".5KB": 500, "5.KB": 5000, "1_0.0_1e1_0KB": 100100000000000,
		"0.1MB": 1e5, "1.001MB": 1000999, "8.2GB": 8199999999, "0.0015KB": 1,
		// What it does not read.
		"5GiB": 5 << 30, "1.5gib": 3 << 29, "500MiB": 500 << 20, "4kib": 4096, "2TiB": 2 << 40, "123": 123, "123 b": 123, "1": 1, "1.0": 1, "1.9": 1,
		"9223372036854775807": math.MaxInt64, "9007199254740993KB": 9007199254740993000, "8388607TiB": 8388607 << 40,
	} {
		n, err := ParseSize(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, n, s)
	}
	for _, s := range []string{
		"", " ", "GB", "-5GB", "5 PB", "5GBs", "5G", "5i", "5iB", "0", "0GB", "0.9", "0.0001KB", "infGB", "inf", "nanGB", "NaN", "0x1KB", "1__0KB", "_1KB", "1_KB", "1_.5KB",
		"1._5KB", "1e", "1eKB", "1e1_KB", ".e1KB", ".", ".KB", "++5", "5,5GB", "5 5GB", "1e400KB", "1e400", "9223372036854775808", "9223372036854775.808KB",
		"8388608TiB", "8388608.0TiB", "9223372036854775808.0", "99999999999TB", "18446744073709551616", "18446744073709551615TB", "5GB\x00",
	} {
		_, err := ParseSize(s)
		require.ErrorIs(t, err, ErrBadSize, s)
		assert.ErrorContains(t, err, strconv.Quote(s))
	}
	_, err := ParseSize("5 PB")
	assert.EqualError(t, err, `safetensors: "5 PB": not a number of bytes: expected one of at least a byte, such as 5GB, 1.5GiB, 500MB or 4096`)
}

// A size is the number times the unit, whatever the unit.
func TestParseSizeUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"", "B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"}).Draw(t, "unit")
		n := rapid.Int64Range(1, 1<<20).Draw(t, "n")
		one, err := ParseSize("1" + unit)
		require.NoError(t, err)
		got, err := ParseSize(strconv.FormatInt(n, 10) + unit)
		require.NoError(t, err)
		require.Equal(t, n*one, got)
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"5GB", "1.5 kib", "1_0e-3TB", "8388607TiB", "9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); err == nil {
			require.Positive(t, n, s)
		} else {
			require.ErrorIs(t, err, ErrBadSize)
		}
	})
}
