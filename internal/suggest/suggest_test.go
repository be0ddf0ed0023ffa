package suggest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

var keys = []string{"r", "rank", "lora_alpha", "lora_dropout", "target_modules", "bias", "use_dora", "use_rslora", "learning_rate", "warmup_steps", "max_steps"}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string
	}{
		{"lora_alhpa", []string{"lora_alpha"}}, // neighbours swapped
		{"lora-alpha", []string{"lora_alpha"}},
		{"LearningRate", []string{"learning_rate"}},
		{"alpha", []string{"lora_alpha"}}, // a part of the name
		{"use_dorra", []string{"use_dora", "use_rslora"}},
		{"rnak", []string{"rank"}},
		{"target_module", []string{"target_modules"}},
		{"steps", []string{"max_steps", "warmup_steps"}},
		{"quantisation", nil},
		{"", nil},
	} {
		got := suggest.Nearest(c.name, keys, 3)
		if len(c.want) == 0 {
			assert.Empty(t, got, c.name)
			continue
		}
		assert.Equal(t, c.want, got, c.name)
	}
	assert.Empty(t, suggest.Nearest("rank", keys, 0))
	assert.Equal(t, []string{"ab"}, suggest.Nearest("ab", []string{"ab", "ab"}, 5), "each name once")
}

func TestNearestDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-c_]{1,6}`).Draw(t, "name")
		some := rapid.SliceOfDistinct(rapid.StringMatching(`[a-c_.]{0,7}`), rapid.ID[string]).Draw(t, "candidates")
		other := rapid.Permutation(some).Draw(t, "permuted")
		assert.Equal(t, suggest.Nearest(name, some, 4), suggest.Nearest(name, other, 4))
		got := suggest.Nearest(name, append(other, name), 1)
		assert.Len(t, got, 1)
	})
}

func TestDidYouMean(t *testing.T) {
	assert.Equal(t, "", suggest.DidYouMean("zzz", keys))
	assert.Equal(t, `, did you mean "rank"?`, suggest.DidYouMean("ranks", keys))
	assert.Equal(t, `, did you mean "x1", "x2" or "x3"?`, suggest.DidYouMean("xx", []string{"x3", "x2", "x1", "x4"}))
}

func ExampleDidYouMean() {
	known := []string{"q_proj", "k_proj", "v_proj", "o_proj", "down_proj"}
	fmt.Printf("no module named %q%s\n", "qproj", suggest.DidYouMean("qproj", known))
	// Output:
	// no module named "qproj", did you mean "q_proj"?
}

func TestExpected(t *testing.T) {
	for want, words := range map[string][]string{
		`found "bff16", expected f32, bf16 or auto, did you mean "bf16"?`: {"f32", "bf16", "auto"},
		`found "bff16", expected one or two`:                              {"one", "two"},
		`found "bff16", expected one`:                                     {"one"},
		`found "bff16", expected `:                                        nil,
	} {
		assert.Equal(t, want, suggest.Expected("bff16", words))
	}
}
