package model

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Which experts there are, how many of them a token has, and in which layers, is read
// as either version of transformers spells it.
func TestExpertsOfConfigs(t *testing.T) {
	for name, want := range map[string]struct {
		count, chosen, units int
		normalized           bool
		windows              []int
		plain                []bool
	}{
		"mixtral":              {5, 2, 24, true, []int{7, 7}, nil},
		"qwen3-moe":            {6, 3, 20, false, []int{0, 0, 0, 0}, []bool{true, false, true, true}},
		"qwen3-moe-normalized": {6, 2, 20, true, []int{0, 0}, []bool{false, false}},
	} {
		files, err := filepath.Glob(filepath.Join("../../testdata/extra", name, "config*.json"))
		require.NoError(t, err)
		require.Len(t, files, 2)
		for _, file := range files {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			c, err := ParseConfig(raw)
			require.NoError(t, err)
			m := c.Mixture()
			var windows []int
			var plain []bool
			switch family := c.Family.(type) {
			case *mixtral:
				windows = slices.Repeat([]int{family.Window}, c.Layers)
			case *qwen3MoE:
				windows, plain = slices.Repeat([]int{family.Window}, c.Layers), family.Plain
			}
			require.Equal(t, want.count, m.Experts.Count, file)
			require.Equal(t, want.chosen, m.Experts.Chosen, file)
			require.Equal(t, want.units, m.Experts.Units, file)
			require.Equal(t, want.normalized, m.Experts.Normalized, file)
			require.Equal(t, want.windows, windows, file)
			require.Equal(t, want.plain, plain, file)
		}
	}
}

func TestFrequenciesOfTheDefault(t *testing.T) {
	r := plainRoPE(&Config{}, 16, 10000)
	for i, f := range r.Frequencies(10) {
		require.InEpsilon(t, math.Pow(10000, -float64(2*i)/16), float64(f), 1e-6)
	}
}

func FuzzParseConfig(f *testing.F) {
	paths, _ := filepath.Glob("../../testdata/lm/*/*/config*.json")
	classifiers, _ := filepath.Glob("../../testdata/tasks/*/merged/config.json")
	for _, p := range append(paths, classifiers...) {
		if raw, err := os.ReadFile(p); err == nil {
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw)
		if err != nil {
			return
		}
		if err := c.Classes.Check(); c.Part == Classifier && err != nil {
			t.Fatal(err)
		}
		m, ok := c.Family.(*llama)
		if !ok || m.HeadDim > 1<<12 {
			return
		}
		if n := len(m.RoPE.Frequencies(100)); n != m.HeadDim/2 {
			t.Fatalf("%d frequencies, expected %d", n, m.HeadDim/2)
		}
	})
}
