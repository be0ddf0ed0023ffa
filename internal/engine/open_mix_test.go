package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/draws"
	"github.com/lorafuse/lorafuse/internal/engine"
)

// TestOpenMix: one program runs with plain adapters of any rank, scale and modules in its positions, next
// to adapters of other kinds. Rows get the bits of their adapter alone.
func TestOpenMix(t *testing.T) {
	for _, c := range []struct {
		base  string
		built []string
	}{
		{"../../testdata/peft/base/small-llama", append(ranks(`"target_modules":"all-linear"`),
			`"target_modules":["q_proj","up_proj"],"r":7,"rank_pattern":{"up_proj":64},"use_rslora":true`, `"target_modules":["v_proj"],"r":8,"layers_to_transform":[0]`,
			`"target_modules":["q_proj"],"use_dora":true`, `"target_modules":["lm_head"]`, `"target_modules":["q_proj"],"trainable_token_indices":{"lm_head":[3,5]}`, `"target_modules":["q_proj"],"bias":"all","modules_to_save":["input_layernorm"]`)},
		{"../../testdata/extra/qwen3-moe", append(ranks(`"target_modules":["q_proj","o_proj"]`), `"target_modules":["o_proj"],"target_parameters":["gate.weight"],"modules_to_save":["k_norm"]`)},
	} {
		x := newMixture(t, c.base, backend.Options{Threads: 2, BatchInvariant: true}, nil, c.built...)
		var positions engine.Positions
		var others []*engine.Slot
		for _, s := range x.slots {
			for _, size := range s.Sizes() {
				positions.Sizes = append(positions.Sizes, size, size)
			}
			if s.Sizes() == nil {
				others, positions.Likes = append(others, s), append(positions.Likes, s.Vacant())
			}
		}
		vacant := x.r.NewOpenMultiAdapter(positions, make([]*engine.Slot, len(positions.Sizes)+len(positions.Likes))...)
		p := x.load(t, vacant)
		draws.Check(t, 30, func(t *rapid.T) {
			slots := make([]*engine.Slot, len(positions.Sizes)+len(positions.Likes))
			numbers := []*engine.Slot{}
			put := func(s *engine.Slot, at int) {
				slots[at] = s
				for len(numbers) <= at {
					numbers = append(numbers, nil)
				}
				numbers[at] = s
			}
			for _, s := range x.slots {
				if !rapid.Bool().Draw(t, "given") {
					continue
				}
				for _, size := range s.Sizes() {
					first := 0
					for positions.Sizes[first] != size || slots[first] != nil {
						first++
					}
					second := first + 1
					for second < len(positions.Sizes) && (positions.Sizes[second] != size || slots[second] != nil) {
						second++
					}
					if second < len(positions.Sizes) && rapid.Bool().Draw(t, "second") {
						first = second
					}
					put(s, first)
				}
			}
			for i, s := range others {
				if rapid.Bool().Draw(t, "other") {
					put(s, len(positions.Sizes)+i)
				}
			}
			mix := x.r.NewOpenMultiAdapter(positions, slots...)
			require.True(t, p.Fits(mix))
			var texts []text
			for _, text := range x.drawTexts(t, len(numbers)) {
				if text.adapter < 0 || numbers[text.adapter] != nil {
					texts = append(texts, text)
				}
			}
			if len(texts) == 0 {
				return
			}
			x.compare(t, numbers, texts, x.run(t, p, mix, texts), true, nil)
		})
	}
}
