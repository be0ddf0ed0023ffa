package lora_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
)

// The shape of an adapter is what its graphs depend on, and not its numbers.
func TestShape(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	injection := func(settings string, seed uint64) *lora.Injection {
		p, err := lora.NewPlacement(parse(t, settings), lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.NoError(t, err)
		s, err := p.InitialState(m, seed)
		require.NoError(t, err)
		j, err := s.Injection()
		require.NoError(t, err)
		return j
	}
	const tokens = `"target_modules":["q_proj"],"r":4,"trainable_token_indices":{"lm_head":[3,5]}`
	shapes := map[string]string{}
	for _, settings := range []string{
		`"target_modules":["q_proj"],"r":4`, `"target_modules":["k_proj"],"r":4`, `"target_modules":["q_proj"],"r":5,"lora_alpha":10`, `"target_modules":["q_proj"],"r":4,"lora_alpha":9`,
		`"target_modules":["q_proj"],"r":4,"use_dora":true`, `"target_modules":["q_proj"],"r":4,"lora_bias":true`, `"target_modules":["q_proj"],"r":4,"modules_to_save":["norm"]`,
		`"target_modules":["q_proj"],"r":4,"init_lora_weights":"pissa"`, tokens, `"target_modules":["q_proj"],"r":4,"trainable_token_indices":{"lm_head":[3]}`,
	} {
		shape := injection(settings, 1).Shape()
		require.Equal(t, shape, injection(settings, 2).Shape())
		require.Empty(t, shapes[shape], "as %s", settings)
		shapes[shape] = settings
	}
	require.Equal(t, injection(tokens, 1).Shape(), injection(`"target_modules":["q_proj"],"r":4,"trainable_token_indices":{"lm_head":[7,2]}`, 1).Shape())

	j := injection(tokens, 1)
	require.Equal(t, []byte{3, 0, 0, 0, 5, 0, 0, 0}, j.Constant("tokens.lm_head").Data)
	for _, name := range []string{"tokens.q_proj", "norm.q_proj", "base.q_proj.weight", "other"} {
		require.Nil(t, j.Constant(name), name)
	}
}
