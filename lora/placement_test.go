package lora_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/lora"
)

// decoder is a model of two layers with the usual names.
func decoder(tied bool) lora.Model {
	m := lora.Model{Type: "llama"}
	add := func(name string, kind lora.Kind, in, out int, bias bool) *lora.Module {
		m.Modules = append(m.Modules, lora.Module{Name: name, Kind: kind, In: in, Out: out, Bias: bias})
		return &m.Modules[len(m.Modules)-1]
	}
	add("model.embed_tokens", lora.Embedding, 20, 8, false).InputEmbedding = true
	for l := range 2 {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"self_attn.q_proj", lora.Linear, 8, 8, true)
		add(p+"self_attn.k_proj", lora.Linear, 8, 4, true)
		add(p+"self_attn.v_proj", lora.Linear, 8, 4, true)
		add(p+"self_attn.o_proj", lora.Linear, 8, 8, false)
		add(p+"mlp.gate_proj", lora.Linear, 8, 12, false)
		add(p+"mlp.up_proj", lora.Linear, 8, 12, false)
		add(p+"mlp.down_proj", lora.Linear, 12, 8, false)
		add(p+"input_layernorm", lora.Norm, 8, 8, false)
	}
	add("model.norm", lora.Norm, 8, 8, false)
	head := add("lm_head", lora.Linear, 8, 20, false)
	head.OutputEmbedding = true
	if tied {
		head.TiedTo = "model.embed_tokens"
	}
	return m
}

func parse(t testing.TB, settings string) *lora.Config {
	t.Helper()
	if settings != "" {
		settings = "," + settings
	}
	c, err := lora.ParseConfig([]byte(`{"peft_type":"LORA"` + settings + `}`))
	require.NoError(t, err)
	return c
}

func place(t testing.TB, settings string, m lora.Model) *lora.Placement {
	t.Helper()
	p, err := lora.NewPlacement(parse(t, settings), m)
	require.NoError(t, err)
	return p
}

// short are the names of the targets without what they have in common.
func short(p *lora.Placement) string {
	var names []string
	for _, t := range p.Targets {
		n := strings.NewReplacer("model.layers.", "", "self_attn.", "", "mlp.", "", "_proj", "").Replace(t.Name)
		names = append(names, n)
	}
	return strings.Join(names, " ")
}

func TestTargets(t *testing.T) {
	for settings, want := range map[string]string{
		``:                            "0.q 0.v 1.q 1.v",
		`"target_modules":["q_proj"]`: "0.q 1.q",
		`"target_modules":["proj"]`:   "", // no dot before it
		`"target_modules":["mlp.up_proj","model.norm","lm_head"]`:    "error model.norm",
		`"target_modules":["layers.1.mlp.up_proj","lm_head"]`:        "1.up lm_head",
		`"target_modules":["embed_tokens"]`:                          "model.embed_tokens",
		`"target_modules":["self_attn"]`:                             "error self_attn",
		`"target_modules":".*attn.*"`:                                "error model.layers.0.self_attn",
		`"target_modules":".*attn\\.[qk]_proj"`:                      "0.q 0.k 1.q 1.k",
		`"target_modules":"q_proj"`:                                  "", // a pattern matches the full name
		`"target_modules":"model.*(q_proj|k_proj$)"`:                 "0.q 0.k 1.q 1.k",
		`"target_modules":"(?i).*\\.Q_PROJ"`:                         "0.q 1.q",
		`"target_modules":".*\\.(?!q|k)._proj"`:                      "0.v 0.o 1.v 1.o",
		`"target_modules":".*(?<=attn\\.)[qv]_proj"`:                 "0.q 0.v 1.q 1.v",
		`"target_modules":"(?P<a>m)odel.layers.1.(?P=a)lp.[^.]{,9}"`: "1.gate 1.up 1.down",
		`"target_modules":".*[]g]ate_proj\\Z"`:                       "0.gate 1.gate",
		`"target_modules":"all-linear"`:                              "0.q 0.k 0.v 0.o 0.gate 0.up 0.down 1.q 1.k 1.v 1.o 1.gate 1.up 1.down",
		`"target_modules":"ALL-Linear","exclude_modules":["mlp.up_proj","k_proj","layers.1.mlp.down_proj"]`: "0.q 0.v 0.o 0.gate 0.down 1.q 1.v 1.o 1.gate",
		`"target_modules":["q_proj","v_proj"],"exclude_modules":".*0.*"`:                                    "1.q 1.v",
		`"target_modules":["q_proj","v_proj"],"modules_to_save":["layers.0","lm_head"]`:                     "1.q 1.v",
		`"target_modules":["q_proj","v_proj"],"modules_to_save":["v_proj"]`:                                 "0.q 1.q",
		`"target_modules":["q_proj","v_proj"],"layers_to_transform":1`:                                      "1.q 1.v",
		`"target_modules":["q_proj","v_proj"],"layers_to_transform":[]`:                                     "0.q 0.v 1.q 1.v",
		`"target_modules":["q_proj"],"layers_to_transform":[0,7]`:                                           "0.q",
		`"target_modules":["q_proj"],"layers_to_transform":[7]`:                                             "",
		`"target_modules":["q_proj","lm_head"],"layers_to_transform":[0]`:                                   "0.q lm_head", // full name
		`"target_modules":["q_proj","embed_tokens"],"layers_to_transform":[0]`:                              "0.q",
		`"target_modules":["q_proj"],"layers_to_transform":[0],"layers_pattern":"layers"`:                   "0.q",
		`"target_modules":["q_proj"],"layers_to_transform":[0],"layers_pattern":["h","layers"]`:             "0.q",
		`"target_modules":["q_proj"],"layers_to_transform":[0],"layers_pattern":"h"`:                        "",
		`"target_modules":["q_proj"],"layers_to_transform":[1],"layers_pattern":"(layers)"`:                 "error finds \"layers\" in",
		`"target_modules":[]`: "",
	} {
		p, err := lora.NewPlacement(parse(t, settings), decoder(false))
		culprit, fails := strings.CutPrefix(want, "error ")
		switch {
		case want == "":
			require.ErrorIs(t, err, lora.ErrNoTarget, settings)
		case fails:
			require.Error(t, err, settings)
			assert.ErrorContains(t, err, culprit, settings)
		default:
			require.NoError(t, err, settings)
			assert.Equal(t, want, short(p), settings)
		}
	}
}

func TestDefaultTargets(t *testing.T) {
	for model, want := range map[string]string{"qwen3": "0.q 0.v 1.q 1.v", "mistral": "0.q 0.v 1.q 1.v", "nemotron_h": "0.q 0.k 0.v 0.o 1.q 1.k 1.v 1.o"} {
		m := decoder(false)
		m.Type = model
		p := place(t, "", m)
		assert.Equal(t, want, short(p))
		assert.True(t, p.Config().TargetModules.IsSet())
	}
	m := decoder(false)
	m.Type = "strange"
	_, err := lora.NewPlacement(lora.DefaultConfig(), m)
	assert.ErrorContains(t, err, `target_modules: it must be set: there is no default for models of type "strange"`)
}

func TestAllLinearWithoutHead(t *testing.T) {
	m := lora.Model{Type: "bert", Modules: []lora.Module{
		{Name: "bert.query", Kind: lora.Linear, In: 2, Out: 2},
		{Name: "classifier", Kind: lora.Linear, In: 2, Out: 2},
		{Name: "score", Kind: lora.Conv1D, In: 2, Out: 2},
	}}
	assert.Equal(t, "bert.query", short(place(t, `"target_modules":"all-linear","task_type":"SEQ_CLS"`, m)))
	assert.Equal(t, "bert.query classifier score", short(place(t, `"target_modules":"all-linear","task_type":"TOKEN_CLS"`, m)))
}

func TestNoTargetNamesTheNearest(t *testing.T) {
	for settings, want := range map[string]string{
		`"target_modules":["q_prj"]`: `target_modules ["q_prj"] is not in the model, did you mean "q_proj"?`,
		`"target_modules":["nonsense_at_all"],"layers_to_transform":[1],"layers_pattern":"h"`: `is not in the model in layers_to_transform [1] of layers_pattern ["h"]; it has ["down_proj" "gate_proj"`,
		`"target_modules":["q_proj"],"exclude_modules":["q_proj"]`:                            "together with exclude_modules and modules_to_save leaves nothing",
		`"target_modules":[]`: "target_modules is empty",
	} {
		_, err := lora.NewPlacement(parse(t, settings), decoder(false))
		require.ErrorIs(t, err, lora.ErrNoTarget)
		assert.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "\n")
	}
}

func TestUnused(t *testing.T) {
	p := place(t, `"target_modules":["q_proj","up_prj"],"exclude_modules":["vproj"],"modules_to_save":["lm_haed"],"rank_pattern":{"k_proj":2,"q_proj":3},"alpha_pattern":{"x.*":2}`, decoder(false))
	var got []string
	for _, u := range p.Unused {
		got = append(got, u.String())
	}
	assert.Equal(t, []string{
		`target_modules: "up_prj", did you mean "up_proj"?`, `exclude_modules: "vproj", did you mean "v_proj"?`,
		`rank_pattern: "k_proj" matches no target, only modules that are not adapted`, `alpha_pattern: "x.*"`, `modules_to_save: "lm_haed", did you mean "lm_head"?`,
	}, got)
	require.ErrorIs(t, p.CheckUsed(), lora.ErrUnused)
	assert.Contains(t, p.Warnings, `exclude_modules ["vproj"] excludes nothing`)
	assert.NoError(t, place(t, `"target_modules":["q_proj"]`, decoder(false)).CheckUsed())
}

// TestShadowedRules names the pattern that takes all modules of another.
func TestShadowedRules(t *testing.T) {
	p := place(t, `"target_modules":["q_proj","v_proj"],"rank_pattern":{"[qv]_proj":2,"layers.1.*.q_proj":4,"q_proj":3},"alpha_pattern":{"v_proj":2,"0.self_attn.v_proj":5}`, decoder(false))
	require.EqualError(t, p.CheckUsed(), `lora: name or pattern without effect: rank_pattern: "layers.1.*.q_proj" is shadowed by ["[qv]_proj"], which matches the same modules and comes first; `+
		`rank_pattern: "q_proj" is shadowed by ["[qv]_proj"], which matches the same modules and comes first; alpha_pattern: "0.self_attn.v_proj" is shadowed by ["v_proj"], which matches the same modules and comes first`)
}

// TestResidualOfTiedHead: PEFT takes the part that PiSSA begins with out of the embedding too.
func TestResidualOfTiedHead(t *testing.T) {
	for _, method := range []string{"pissa", "pissa_niter_2", "olora"} {
		for targets, want := range map[string]string{`["q_proj","lm_head"]`: `takes a part out of the weight of "lm_head", which "model.embed_tokens" shares`, `["q_proj"]`: "", `"all-linear"`: ""} {
			settings := `"init_lora_weights":"` + method + `","target_modules":` + targets
			_, err := lora.NewPlacement(parse(t, settings), decoder(true))
			if want == "" {
				assert.NoError(t, err, settings)
				continue
			}
			require.ErrorIs(t, err, lora.ErrUnsupported)
			assert.ErrorContains(t, err, want)
			_, err = lora.NewPlacement(parse(t, settings), decoder(false))
			assert.NoError(t, err, settings)
		}
	}
}

func TestRanksAndScales(t *testing.T) {
	p := place(t, `"target_modules":["q_proj","k_proj","down_proj"],"r":4,"lora_alpha":6,
		"rank_pattern":{"layers.1.*":1,"k_proj":2,"^model.layers.0.mlp.*":3,"down_proj":9},"alpha_pattern":{".*q_proj":5,"self_attn.k_proj":7.5,"proj":99}`, decoder(false))
	got := map[string][3]float64{}
	for _, t := range p.Targets {
		got[t.Name] = [3]float64{float64(t.Rank), t.Alpha, t.Scale}
	}
	assert.Equal(t, map[string][3]float64{
		"model.layers.0.self_attn.q_proj": {4, 5, 1.25},
		"model.layers.0.self_attn.k_proj": {2, 7.5, 3.75},
		"model.layers.0.mlp.down_proj":    {3, 6, 2},
		"model.layers.1.self_attn.q_proj": {1, 5, 5},
		"model.layers.1.self_attn.k_proj": {1, 7.5, 7.5},
		"model.layers.1.mlp.down_proj":    {1, 6, 6},
	}, got)

	p = place(t, `"r":9,"lora_alpha":6,"use_rslora":true,"rank_pattern":{"v_proj":16}`, decoder(false))
	assert.Equal(t, 2.0, p.Targets[0].Scale)
	assert.Equal(t, 1.5, p.Targets[1].Scale)
	assert.Equal(t, 16, p.Targets[1].Rank)
}

// A key that means nothing as a pattern still matches the module of that name.
func TestRankPatternOfTheNameItself(t *testing.T) {
	m := lora.Model{Modules: []lora.Module{{Name: "h[0].q", Kind: lora.Linear, In: 3, Out: 2}}}
	p := place(t, `"target_modules":["h[0].q"],"rank_pattern":{"h[0].q":2}`, m)
	assert.Equal(t, 2, p.Targets[0].Rank)
}

func TestConv1DAndFanInFanOut(t *testing.T) {
	m := lora.Model{Type: "gpt2", Modules: []lora.Module{{Name: "h.0.attn.c_attn", Kind: lora.Conv1D, In: 4, Out: 12, Bias: true}}}
	p := place(t, "", m)
	assert.True(t, p.Config().FanInFanOut)
	assert.Len(t, p.Warnings, 1)
	assert.Equal(t, []int{8, 4}, p.Tensors()[0].Shape)
	assert.Equal(t, []int{12, 8}, p.Tensors()[1].Shape)
	assert.False(t, place(t, `"fan_in_fan_out":true`, decoder(false)).Config().FanInFanOut)
}

func TestPlanErrors(t *testing.T) {
	for settings, want := range map[string]string{
		`"target_modules":["input_layernorm"]`:                                     "input_layernorm\", which is a norm",
		`"target_modules":["embed_tokens"],"lora_bias":true`:                       "lora_bias: \"model.embed_tokens\", which is an embedding, has none",
		`"modules_to_save":["ead"],"target_modules":["lm_head"]`:                   "\"lm_head\" is targeted too",
		`"trainable_token_indices":[20]`:                                           "token 20 is outside of \"model.embed_tokens\", which has 20",
		`"trainable_token_indices":[3],"target_modules":["embed_tokens"]`:          "is in target_modules too",
		`"trainable_token_indices":[3],"modules_to_save":["embed_tokens"]`:         "is in modules_to_save too",
		`"trainable_token_indices":{"embed":[3]}`:                                  "\"embed\" is not in the model, did you mean \"embed_tokens\"",
		`"trainable_token_indices":{"o_proj":[3],"layers.1.self_attn.o_proj":[1]}`: "is named twice",
		`"trainable_token_indices":{"norm":[3]}`:                                   "embeddings and heads have tokens",
		`"trainable_token_indices":{"q_proj":[3]},"target_modules":["k_proj"]`:     "has a bias",
		`"r":-1`: "r: the rank must be at least 1",
	} {
		_, err := lora.NewPlacement(parse(t, settings), decoder(false))
		require.Error(t, err, settings)
		assert.ErrorContains(t, err, want, settings)
	}
	_, err := lora.NewPlacement(lora.DefaultConfig(), lora.Model{Type: "llama", Modules: []lora.Module{{Name: "q_proj", Kind: lora.Linear, Out: 3}}})
	require.ErrorIs(t, err, lora.ErrShape)
}

func keysOf(p *lora.Placement) []string {
	var keys []string
	for _, s := range p.Tensors() {
		key := fmt.Sprintf("%s %v", strings.TrimPrefix(s.Key, "base_model.model."), s.Shape)
		if s.Optional {
			key += " optional"
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// The keys of every kind of adapter, as PEFT names them.
func TestKeys(t *testing.T) {
	one := `"layers_to_transform":1,"r":2,`
	for settings, want := range map[string][]string{
		one + `"target_modules":["k_proj"]`: {"model.layers.1.self_attn.k_proj.lora_A.weight [2 8]", "model.layers.1.self_attn.k_proj.lora_B.weight [4 2]"},
		one + `"target_modules":["k_proj"],"use_dora":true`: {"model.layers.1.self_attn.k_proj.lora_A.weight [2 8]", "model.layers.1.self_attn.k_proj.lora_B.weight [4 2]",
			"model.layers.1.self_attn.k_proj.lora_magnitude_vector [4]"},
		one + `"target_modules":["k_proj"],"lora_bias":true`: {"model.layers.1.self_attn.k_proj.lora_A.weight [2 8]", "model.layers.1.self_attn.k_proj.lora_B.bias [4]",
			"model.layers.1.self_attn.k_proj.lora_B.weight [4 2]"},
		one + `"target_modules":["k_proj"],"bias":"lora_only"`: {"model.layers.1.self_attn.k_proj.base_layer.bias [4]", "model.layers.1.self_attn.k_proj.lora_A.weight [2 8]",
			"model.layers.1.self_attn.k_proj.lora_B.weight [4 2]"},
		one + `"target_modules":["down_proj"],"bias":"all"`: {
			"model.layers.0.self_attn.k_proj.bias [4]", "model.layers.0.self_attn.q_proj.bias [8]", "model.layers.0.self_attn.v_proj.bias [4]",
			"model.layers.1.mlp.down_proj.lora_A.weight [2 12]", "model.layers.1.mlp.down_proj.lora_B.weight [8 2]",
			"model.layers.1.self_attn.k_proj.bias [4]", "model.layers.1.self_attn.q_proj.bias [8]", "model.layers.1.self_attn.v_proj.bias [4]"},
		`"r":2,"target_modules":["embed_tokens"],"use_dora":true`: {"model.embed_tokens.base_layer.weight [20 8] optional", "model.embed_tokens.lora_embedding_A [2 20]",
			"model.embed_tokens.lora_embedding_B [8 2]", "model.embed_tokens.lora_magnitude_vector [8]"},
		`"r":2,"target_modules":["model.embed_tokens"]`: {"model.embed_tokens.lora_embedding_A [2 20]", "model.embed_tokens.lora_embedding_B [8 2]"},
		`"r":2,"target_modules":".*lm_head"`:            {"lm_head.base_layer.weight [20 8] optional", "lm_head.lora_A.weight [2 8]", "lm_head.lora_B.weight [20 2]"},
		one + `"target_modules":["k_proj"],"modules_to_save":["lm_head","layers.0.self_attn.q_proj"]`: {"lm_head.weight [20 8]",
			"model.layers.0.self_attn.q_proj.bias [8]", "model.layers.0.self_attn.q_proj.weight [8 8]",
			"model.layers.1.self_attn.k_proj.lora_A.weight [2 8]", "model.layers.1.self_attn.k_proj.lora_B.weight [4 2]"},
		one + `"target_modules":["k_proj"],"trainable_token_indices":{"lm_head":[3,1],"embed_tokens":[0]}`: {"lm_head.token_adapter.trainable_tokens_delta [2 8]",
			"model.embed_tokens.token_adapter.trainable_tokens_delta [1 8]",
			"model.layers.1.self_attn.k_proj.lora_A.weight [2 8]", "model.layers.1.self_attn.k_proj.lora_B.weight [4 2]"},
	} {
		assert.Equal(t, want, keysOf(place(t, settings, decoder(false))), settings)
	}
}

func TestTiedTokens(t *testing.T) {
	p := place(t, `"trainable_token_indices":[3,1]`, decoder(true))
	require.Len(t, p.Tokens, 1)
	assert.Equal(t, "model.embed_tokens", p.Tokens[0].Name)
	assert.Equal(t, []int{3, 1}, p.Tokens[0].Tokens)
	require.Len(t, p.Tokens[0].Tied, 1)
	assert.Equal(t, "lm_head", p.Tokens[0].Tied[0].Name)

	for _, order := range []string{`{"lm_head":[3],"embed_tokens":[3]}`, `{"embed_tokens":[3],"lm_head":[3]}`} {
		p = place(t, `"trainable_token_indices":`+order, decoder(true))
		require.Len(t, p.Tokens, 1)
		assert.Equal(t, "model.embed_tokens", p.Tokens[0].Name)
		assert.Len(t, p.Tokens[0].Tied, 1)
	}
	p = place(t, `"trainable_token_indices":{"lm_head":[3],"embed_tokens":[4]}`, decoder(true))
	require.Len(t, p.Tokens, 2)
	assert.Empty(t, p.Tokens[1].Tied)
	_, err := lora.NewPlacement(parse(t, `"trainable_token_indices":{"lm_head":[3],"embed_tokens":[4]},"ensure_weight_tying":true`), decoder(true))
	assert.ErrorContains(t, err, "ensure_weight_tying")
}

func TestEnsureWeightTying(t *testing.T) {
	for _, target := range []string{`["lm_head","k_proj"]`, `["embed_tokens","k_proj"]`, `".*(k_proj|embed_tokens)"`} {
		p := place(t, `"ensure_weight_tying":true,"target_modules":`+target, decoder(true))
		assert.Equal(t, "model.embed_tokens 0.k 1.k lm_head", short(p), target)
		assert.Equal(t, "model.embed_tokens", p.Targets[3].SharesWith)
		again, err := lora.NewPlacement(p.Config(), decoder(true))
		require.NoError(t, err)
		assert.Equal(t, p.Targets, again.Targets)
	}
	p := place(t, `"ensure_weight_tying":true,"modules_to_save":["lm_head"]`, decoder(true))
	require.Len(t, p.Saved, 2)
	assert.Equal(t, "", p.Saved[0].SharesWith)
	assert.Equal(t, "model.embed_tokens", p.Saved[1].SharesWith)
	assert.Equal(t, []string{"model.embed_tokens"}, p.Config().ModulesToSave)

	assert.Len(t, place(t, `"ensure_weight_tying":true`, decoder(false)).Warnings, 1)
	assert.Len(t, place(t, `"target_modules":["lm_head"]`, decoder(true)).Warnings, 1)
}

// all-linear of 20 and more modules is saved as the endings that PEFT saves.
func TestCondensedTargets(t *testing.T) {
	m := decoder(false)
	for l := 2; l < 4; l++ {
		for _, n := range m.Modules[1:8] {
			n.Name = strings.Replace(n.Name, ".0.", fmt.Sprintf(".%d.", l), 1)
			m.Modules = append(m.Modules, n)
		}
	}
	p := place(t, `"target_modules":"all-linear"`, m)
	assert.Equal(t, []string{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}, p.Config().TargetModules.Names)
	assert.Len(t, place(t, `"target_modules":"all-linear"`, decoder(false)).Config().TargetModules.Names, 14)
	again, err := lora.NewPlacement(p.Config(), m)
	require.NoError(t, err)
	assert.Equal(t, p.Targets, again.Targets)
}

// Whatever is chosen by full names is chosen again by what is saved.
func TestResolvedConfigProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := lora.Model{Type: "x"}
		var names []string
		for l := range rapid.IntRange(5, 12).Draw(t, "layers") {
			for _, n := range []string{"a.q", "a.k", "b.q", "up"} {
				name := fmt.Sprintf("h.%d.%s", l, n)
				m.Modules = append(m.Modules, lora.Module{Name: name, Kind: lora.Linear, In: 2, Out: 3})
				if rapid.IntRange(0, 9).Draw(t, "leave out") > 0 {
					names = append(names, name)
				}
			}
		}
		if len(names) == 0 {
			return
		}
		c := lora.DefaultConfig()
		c.TargetModules.Names = names
		p, err := lora.NewPlacement(c, m)
		require.NoError(t, err)
		again, err := lora.NewPlacement(p.Config(), m)
		require.NoError(t, err)
		require.Equal(t, p.Targets, again.Targets)
		require.LessOrEqual(t, len(p.Config().TargetModules.Names), len(names))
	})
}

// The modules, ranks, alphas and scales are those of PEFT.
func TestPlanOfFixtures(t *testing.T) {
	type module struct {
		R            int
		Alpha, Scale float64
	}
	dirs, err := filepath.Glob("../testdata/peft/*/case.json")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, path := range dirs {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var c struct {
				Base    string
				Config  map[string]any
				Modules map[string]module
			}
			readJSON(t, path, &c)
			cfg, err := lora.ReadConfig(filepath.Join(dir, "adapter"))
			require.NoError(t, err)
			p, err := lora.NewPlacement(cfg, readModel(t, filepath.Join(dir, c.Base)))
			require.NoError(t, err)
			got := map[string]module{}
			for _, target := range p.Targets {
				r := math.Round(target.Alpha / target.Scale)
				if cfg.UseRSLoRA {
					r = math.Round(target.Alpha * target.Alpha / target.Scale / target.Scale)
				}
				got[target.Name] = module{int(r), target.Alpha, target.Scale}
			}
			assert.Equal(t, c.Modules, got)
			// What PEFT saved it would save again, or what it has made of it.
			if converted := filepath.Join(dir, "converted/adapter"); cfg.InitLoraWeights == lora.InitDefault && exists(converted) {
				cfg, err = lora.ReadConfig(converted)
				require.NoError(t, err)
			}
			assert.Equal(t, sortedSets(string(cfg.JSON())), string(p.Config().JSON()))
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
