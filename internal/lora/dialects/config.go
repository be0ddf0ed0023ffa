package dialects

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/lora"
)

// config returns PEFT's configuration of the pieces: the one in the file's metadata, or
// a new one with the rank and alpha of each module.
func (f *file) config(pieces []piece) (*lora.Config, error) {
	metadata, _ := f.set.Metadata()
	c, err := parseMetadata(metadata)
	if err != nil {
		return nil, err
	}
	if c == nil {
		if c, err = configOf(pieces); err != nil {
			return nil, err
		}
	}
	if !c.TargetModules.IsSet() {
		c.TargetModules.Names, c.ExcludeModules.Names = f.targets(pieces)
	}
	return c, nil
}

// targets returns target_modules and exclude_modules for the modules of the pieces.
func (f *file) targets(pieces []piece) (names, exclude []string) {
	chosen := make([]string, len(pieces))
	for i, p := range pieces {
		chosen[i] = p.module.Name
	}
	return targets(f.model, chosen)
}

// configOf builds a configuration for pieces that come without one: the most frequent
// rank and alpha, with patterns for the other modules.
func configOf(pieces []piece) (*lora.Config, error) {
	c := lora.DefaultConfig()
	for _, e := range endings {
		n := 0
		for _, p := range pieces {
			if _, ok := p.more[e.role]; ok {
				n++
			}
		}
		switch {
		case n == 0 || e.set == nil:
		case n < len(pieces):
			return nil, fmt.Errorf("%w: %d of %d layers have a %s, expected all or none", lora.ErrUnsupported, n, len(pieces), e.role)
		default:
			e.set(c)
		}
	}
	names, ranks, alphas := make([]string, len(pieces)), make([]int, len(pieces)), make([]float64, len(pieces))
	for i, p := range pieces {
		names[i], ranks[i], alphas[i] = p.module.Name, p.rank(), p.alpha
	}
	setRanks(c, names, ranks, alphas)
	return c, nil
}

// setRanks sets the most frequent rank and alpha of modules, and patterns for the other modules.
func setRanks(c *lora.Config, modules []string, ranks []int, alphas []float64) {
	ofRank, ofAlpha := map[int]int{}, map[float64]int{}
	for i := range modules {
		ofRank[ranks[i]]++
		ofAlpha[alphas[i]]++
	}
	c.R, c.LoraAlpha = mostFrequent(ofRank), mostFrequent(ofAlpha)
	for i, name := range modules {
		key := "^" + name // this module only, not others with the same ending
		if ranks[i] != c.R {
			c.RankPattern = append(c.RankPattern, lora.RankRule{Key: key, R: ranks[i]})
		}
		if alphas[i] != c.LoraAlpha {
			c.AlphaPattern = append(c.AlphaPattern, lora.AlphaRule{Key: key, Alpha: alphas[i]})
		}
	}
}

// mostFrequent returns the value with the highest count; ties go to the smallest value.
func mostFrequent[T cmp.Ordered](counts map[T]int) T {
	values := slices.Sorted(maps.Keys(counts))
	return slices.MaxFunc(values, func(a, b T) int { return cmp.Compare(counts[a], counts[b]) })
}
