// Command linear is the worked example of a small model in a safetensors file:
// a linear model that predicts the file size of a LoRA adapter. It is fitted to
// adapters that PEFT has saved, then saved, loaded, and evaluated on unseen
// adapters.
//
//	go run ./examples/linear
//
// Python reads the same file:
//
//	from safetensors.numpy import load_file
//	m = load_file("examples/linear/output/model.safetensors")
//	print(m["coefficients"] @ [448, 28000, 20971520] + m["intercept"])
package main

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"github.com/lorafuse/lorafuse/internal/linear"
)

// adapters.csv has one row per distinct adapter shape in testdata/peft: properties of
// adapter_model.safetensors, and its file size in bytes.
//
//go:embed adapters.csv
var adapters []byte

func main() {
	dir := filepath.Join("examples", "linear", "output")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		log.Fatal(err)
	}
	if err := run(os.Stdout, filepath.Join(dir, "model.safetensors")); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, file string) error {
	names, x, y, err := table(adapters)
	if err != nil {
		return err
	}
	seen := len(x) * 3 / 4

	var m linear.LinearRegression
	if err := m.Fit(x[:seen], y[:seen]); err != nil {
		return err
	}
	if err := m.SaveSafetensors(file); err != nil {
		return err
	}
	back, err := linear.LoadSafetensors(file)
	if err != nil {
		return err
	}

	fmt.Fprintf(w, "a file has\n%8.1f bytes, and\n", back.Intercept)
	for j, c := range back.Coefficients {
		fmt.Fprintf(w, "%8.1f for each %s\n", c, names[j])
	}
	score, err := back.Score(x[seen:], y[seen:])
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "R² on %d of %d adapters, which it has not seen: %.4f\n", len(x)-seen, len(x), score)

	// Rank 8 on the seven linear layers of 32 blocks of a model with 8 billion parameters.
	size, err := back.Predict([][]float64{{448, 28_000, 20_971_520}})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "an adapter of 21 million parameters will have %.1f MB\n", size[0]/1e6)
	return nil
}

// table parses a CSV file with column names and numbers. The last column is the target.
func table(raw []byte) (names []string, x [][]float64, y []float64, err error) {
	rows, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	if err != nil {
		return nil, nil, nil, err
	}
	last := len(rows[0]) - 1
	for _, row := range rows[1:] {
		var values []float64
		for _, text := range row[1:] {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", row[0], err)
			}
			values = append(values, v)
		}
		x, y = append(x, values[:last-1]), append(y, values[last-1])
	}
	return rows[0][1:last], x, y, nil
}
