// Command linear fits a linear model that predicts the file size of a LoRA adapter, keeps it in a
// safetensors file, and judges it by adapters that it has not seen. Python reads the file, too.
package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"

	"github.com/lorafuse/lorafuse/internal/linear"
)

func main() {
	const dir, file = "examples/linear/", "examples/linear/output/model.safetensors"
	rows := must(csv.NewReader(must(os.Open(dir + "adapters.csv"))).ReadAll()) // shapes and sizes of testdata/peft
	x, y := [][]float64{}, []float64{}
	for _, row := range rows[1:] { // name, tensors, bytes of names, parameters, bytes of the file
		x = append(x, []float64{number(row[1]), number(row[2]), number(row[3])})
		y = append(y, number(row[4]))
	}
	seen := len(x) * 3 / 4
	var m linear.LinearRegression
	must(0, m.Fit(x[:seen], y[:seen]))
	must(0, os.MkdirAll(dir+"output", 0o777))
	must(0, m.SaveSafetensors(file))
	m = *must(linear.LoadSafetensors(file))
	fmt.Printf("bytes of a file: %.1f and %.1f for each %q\n", m.Intercept, m.Coefficients, rows[0][1:4])
	fmt.Printf("R² on %d unseen adapters of %d: %.4f\n", len(x)-seen, len(x), must(m.Score(x[seen:], y[seen:])))
	fmt.Printf("rank 8 on all layers of an 8B model: %.1f MB\n", must(m.Predict([][]float64{{448, 28_000, 20_971_520}}))[0]/1e6)
}

func number(text string) float64 { return must(strconv.ParseFloat(text, 64)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
