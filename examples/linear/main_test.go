package main

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/linear"
	"github.com/lorafuse/lorafuse/safetensors"
)

func Example() {
	dir, err := os.MkdirTemp("", "linear")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := run(os.Stdout, filepath.Join(dir, "model.safetensors")); err != nil {
		panic(err)
	}
	// Output:
	// a file has
	//     25.7 bytes, and
	//     55.6 for each tensor
	//      1.1 for each byte of a name
	//      4.0 for each parameter
	// R² on 10 of 38 adapters, which it has not seen: 1.0000
	// an adapter of 21 million parameters will have 84.1 MB
}

// TestAdapters: the numbers of adapters.csv are those of the files.
func TestAdapters(t *testing.T) {
	rows, err := csv.NewReader(bytes.NewReader(adapters)).ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(rows), 30)
	for _, row := range rows[1:] {
		path := filepath.Join("..", "..", "testdata", "peft", row[0], "adapter", "adapter_model.safetensors")
		f, err := safetensors.Open(path)
		require.NoError(t, err)
		letters, parameters := 0, 0
		for _, name := range f.Names() {
			v, err := f.Lookup(name)
			require.NoError(t, err)
			require.Equal(t, safetensors.F32, v.DType)
			letters, parameters = letters+len(name), parameters+v.Len()/4
		}
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, row[1:], []string{strconv.Itoa(f.Len()), strconv.Itoa(letters), strconv.Itoa(parameters), strconv.FormatInt(info.Size(), 10)}, row[0])
		require.NoError(t, f.Close())
	}
}

// The model survives the file bit for bit.
func TestKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, run(new(bytes.Buffer), file))
	back, err := linear.LoadSafetensors(file)
	require.NoError(t, err)
	_, x, y, err := table(adapters)
	require.NoError(t, err)
	var m linear.LinearRegression
	require.NoError(t, m.Fit(x[:28], y[:28]))
	require.Equal(t, m, *back)
}
