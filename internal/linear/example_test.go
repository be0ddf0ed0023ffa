package linear_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/linear"
)

func Example() {
	dir, err := os.MkdirTemp("", "linear")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	var m linear.LinearRegression
	if err := m.Fit([][]float64{{0, 0}, {1, 0}, {0, 1}, {1, 1}}, []float64{1, 3, 0, 2}); err != nil {
		panic(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	if err := m.SaveSafetensors(path); err != nil {
		panic(err)
	}
	back, err := linear.LoadSafetensors(path)
	if err != nil {
		panic(err)
	}
	y, err := back.Predict([][]float64{{10, 1}})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.3f %.3f\n", back.Coefficients, back.Intercept)
	fmt.Printf("%.3f\n", y)
	// Output:
	// [2.000 -1.000] 1.000
	// [20.000]
}
