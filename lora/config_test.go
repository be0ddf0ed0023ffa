package lora_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/lora"
)

// sortedSets sorts the lists that are sets in PEFT, whose order in a file is
// therefore any.
func sortedSets(text string) string {
	set := regexp.MustCompile(`(?s)"(target|exclude)_modules": \[\n(.*?)\n  \]`)
	return set.ReplaceAllStringFunc(text, func(s string) string {
		head, rest, _ := strings.Cut(s, "\n")
		lines := strings.Split(strings.TrimSuffix(rest, "\n  ]"), ",\n")
		name := func(line string) (s string) {
			json.Unmarshal([]byte(strings.TrimSpace(line)), &s)
			return s
		}
		slices.SortFunc(lines, func(a, b string) int { return strings.Compare(name(a), name(b)) })
		return head + "\n" + strings.Join(lines, ",\n") + "\n  ]"
	})
}

func configFiles(t testing.TB) []string {
	var files []string
	for _, root := range []string{"../testdata/lm", "../testdata/peft", "testdata/peft"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if filepath.Base(path) == lora.ConfigFile {
				files = append(files, path)
			}
			return err
		}))
	}
	require.Greater(t, len(files), 100)
	return files
}

// What PEFT wrote is written again byte for byte, but for the order of sets.
func TestConfigRoundTrip(t *testing.T) {
	for _, path := range configFiles(t) {
		t.Run(filepath.ToSlash(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			c, err := lora.ParseConfig(data)
			require.NoError(t, err)
			assert.Empty(t, c.Warnings)
			require.NoError(t, c.Validate())
			// The fixtures of one folder are indented by one space.
			want := strings.TrimSuffix(string(data), "\n")
			if strings.HasPrefix(want, "{\n \"") {
				want = regexp.MustCompile(`(?m)^ +`).ReplaceAllStringFunc(want, func(s string) string { return s + s })
			}
			require.Equal(t, sortedSets(want), string(c.JSON()))

			again, err := lora.ParseConfig(c.JSON())
			require.NoError(t, err)
			assert.Equal(t, string(c.JSON()), string(again.JSON()))
		})
	}
}

func TestDefaultConfig(t *testing.T) {
	c, err := lora.ParseConfig([]byte(`{"peft_type": "LORA"}`))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	assert.Equal(t, string(lora.DefaultConfig().JSON()), string(c.JSON()))
	assert.Equal(t, defaultJSON, string(c.JSON()))
}

// json.dumps(LoraConfig(inference_mode=True).to_dict(), indent=2, sort_keys=True)
const defaultJSON = `{
  "alora_invocation_tokens": null,
  "alpha_pattern": {},
  "arrow_config": null,
  "auto_mapping": null,
  "base_model_name_or_path": null,
  "bias": "none",
  "corda_config": null,
  "ensure_weight_tying": false,
  "eva_config": null,
  "exclude_modules": null,
  "fan_in_fan_out": false,
  "inference_mode": true,
  "init_lora_weights": true,
  "kasa_config": null,
  "layer_replication": null,
  "layers_pattern": null,
  "layers_to_transform": null,
  "loftq_config": {},
  "lora_alpha": 8,
  "lora_bias": false,
  "lora_dropout": 0.0,
  "lora_ga_config": null,
  "megatron_config": null,
  "megatron_core": "megatron.core",
  "modules_to_save": null,
  "monteclora_config": null,
  "peft_type": "LORA",
  "peft_version": "0.21.2",
  "qalora_group_size": 16,
  "r": 8,
  "rank_pattern": {},
  "revision": null,
  "target_modules": null,
  "target_parameters": null,
  "task_type": null,
  "trainable_token_indices": null,
  "use_bdlora": null,
  "use_dora": false,
  "use_qalora": false,
  "use_rslora": false,
  "velora_config": null
}`

// The spelling of a value that was not changed stays; one that was changed is
// spelled as Python would.
func TestConfigSpelling(t *testing.T) {
	text := `{"peft_type":"LORA","lora_alpha":16.0,"lora_dropout":0,"layers_to_transform":3,"rank_pattern":{"z":2,"a":3},
		"alpha_pattern":{"b":1.50,"a":2.0},"layers_pattern":"h","base_model_name_or_path":"","auto_mapping":{"z":1,"a":[true,1e20]}}`
	c, err := lora.ParseConfig([]byte(text))
	require.NoError(t, err)
	got := string(c.JSON())
	for _, want := range []string{
		`"lora_alpha": 16.0,`, `"lora_dropout": 0,`, `"layers_to_transform": 3,`, `"layers_pattern": "h",`, `"base_model_name_or_path": "",`,
		"\"rank_pattern\": {\n    \"z\": 2,\n    \"a\": 3\n  }",
		"\"alpha_pattern\": {\n    \"b\": 1.5,\n    \"a\": 2.0\n  }",
		"\"auto_mapping\": {\n    \"a\": [\n      true,\n      1e+20\n    ],\n    \"z\": 1\n  }",
	} {
		assert.Contains(t, got, want)
	}
	assert.Equal(t, []int{3}, c.LayersToTransform)

	c.LoraAlpha, c.LoraDropout, c.LayersToTransform = 32, 0.05, []int{3, 4}
	c.AlphaPattern[0].Alpha = 0.00001
	got = string(c.JSON())
	for _, want := range []string{`"lora_alpha": 32,`, `"lora_dropout": 0.05,`, "\"layers_to_transform\": [\n    3,\n    4\n  ]", `"b": 1e-05,`, "\"a\": 2\n"} {
		assert.Contains(t, got, want)
	}
}

func TestConfigWarnings(t *testing.T) {
	c, err := lora.ParseConfig([]byte(`{"peft_type":"LORA","lora_alhpa":3,"runtime_config":{},"zzz":1}`))
	require.NoError(t, err)
	require.Len(t, c.Warnings, 3)
	assert.Equal(t, `unknown key "lora_alhpa" is ignored, did you mean "lora_alpha"?`, c.Warnings[0])
	assert.Contains(t, c.Warnings[1], "runtime_config")
	assert.Equal(t, `unknown key "zzz" is ignored`, c.Warnings[2])
	assert.Equal(t, 8.0, c.LoraAlpha)
	assert.NotContains(t, string(c.JSON()), "zzz")
}

func TestParseConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "line 1: unexpected EOF",
		`{`:                                "unexpected EOF",
		`{"peft_type": "LORA"`:             "unexpected EOF",
		"{\n\"r\": x}":                     "line 2: ",
		`[]`:                               "expected an object, found a list",
		`null`:                             "expected an object, found null",
		`{"r": 8}`:                         "peft_type: the key is missing",
		`{"peft_type":"LORA"} {}`:          "something follows",
		`{"peft_type":"LORA","r":1,"r":2}`: `key "r" appears twice`,
		"{\"peft_type\":\"\xff\"}":         "not valid UTF-8",
		`{"peft_type":"LORA","r":"8"}`:     `r: expected an integer, found the string "8"`,
		`{"peft_type":"LORA","r":8.5}`:     "r: expected an integer, found 8.5",
		`{"peft_type":"LORA","r":99999999999999999999}`:               "r: expected an integer",
		`{"peft_type":"LORA","lora_alpha":null}`:                      "lora_alpha: expected a number, found null",
		`{"peft_type":"LORA","lora_alpha":1e999}`:                     "lora_alpha: expected a number, found 1e999",
		`{"peft_type":"LORA","use_dora":1}`:                           "use_dora: expected true or false, found the number 1",
		`{"peft_type":"LORA","target_modules":3}`:                     "target_modules: expected a list of names, a pattern or null, found the number 3",
		`{"peft_type":"LORA","target_modules":""}`:                    "target_modules: the pattern is empty",
		`{"peft_type":"LORA","target_modules":["q",1]}`:               "target_modules: element 1: expected a string, found the number 1",
		`{"peft_type":"LORA","modules_to_save":"lm_head"}`:            "modules_to_save: expected a list",
		`{"peft_type":"LORA","rank_pattern":{"q":"2"}}`:               `rank_pattern: "q": expected an integer`,
		`{"peft_type":"LORA","rank_pattern":[1]}`:                     "rank_pattern: expected an object, found a list",
		`{"peft_type":"LORA","init_lora_weights":"true"}`:             "init_lora_weights: expected true, false or the name of a method",
		`{"peft_type":"LORA","trainable_token_indices":{"e":null}}`:   `trainable_token_indices: "e": expected a list of integers, found null`,
		`{"peft_type":"LORA","layers_to_transform":[1.5]}`:            "layers_to_transform: element 0: expected an integer, found 1.5",
		`{"peft_type":"LORA","eva_config":` + strings.Repeat("[", 99): "nested more than 64 levels deep",
	} {
		_, err := lora.ParseConfig([]byte(text))
		require.ErrorIs(t, err, lora.ErrConfig, text)
		assert.ErrorContains(t, err, want, text)
		assert.NotContains(t, err.Error(), "\n")
	}
}

func TestReadConfigErrors(t *testing.T) {
	_, err := lora.ReadConfig(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, lora.ConfigFile), []byte("{"), 0o600))
	_, err = lora.ReadConfig(dir)
	assert.ErrorContains(t, err, dir)
}

func TestValidate(t *testing.T) {
	for text, want := range map[string]string{
		`"r":0`:                                        "r: the rank must be at least 1, found 0",
		`"r":-4`:                                       "found -4",
		`"lora_alpha":0`:                               "lora_alpha: alpha is 0",
		`"lora_dropout":1.5`:                           "lora_dropout: a probability lies in [0, 1], found 1.5",
		`"lora_dropout":-0.1`:                          "found -0.1",
		`"bias":"lora"`:                                `bias: "lora" is none of none, all, lora_only`,
		`"task_type":"CAUSAL"`:                         `did you mean "CAUSAL_LM"?`,
		`"rank_pattern":{"q":0}`:                       `rank_pattern: "q": the rank must be at least 1`,
		`"rank_pattern":{"q(":1}`:                      `rank_pattern: pattern "q("`,
		`"alpha_pattern":{"q":0}`:                      `alpha_pattern: "q": alpha is 0`,
		`"alpha_pattern":{"*":1}`:                      `alpha_pattern: pattern "*"`,
		`"target_modules":"[a"`:                        "target_modules: pattern",
		`"target_modules":["q",""]`:                    "target_modules: the list has an empty name",
		`"exclude_modules":"\\"`:                       "exclude_modules: pattern",
		`"modules_to_save":[""]`:                       "modules_to_save: the list has an empty name",
		`"layers_pattern":"h"`:                         "layers_pattern: layers_to_transform must be set",
		`"layers_to_transform":1,"target_modules":"x"`: "layers_to_transform: it needs target_modules to be a list",
		`"layers_to_transform":1,"target_modules":"all-linear"`:       "layers_to_transform",
		`"layers_to_transform":[-1]`:                                  "a layer cannot be -1",
		`"layers_to_transform":1,"layers_pattern":"("`:                "layers_pattern: pattern",
		`"trainable_token_indices":[]`:                                "no tokens are given",
		`"trainable_token_indices":[1,-2]`:                            "token -2 is negative",
		`"trainable_token_indices":[1,1]`:                             "token 1 is given twice",
		`"trainable_token_indices":{"e":[1]},"modules_to_save":["e"]`: `"e" is in modules_to_save already`,
		`"init_lora_weights":"pisa"`:                                  `init_lora_weights: unknown method "pisa", did you mean "pissa"?`,
		`"init_lora_weights":"pissa_niter_x"`:                         "the iterations must be a number",
		`"lora_bias":true,"init_lora_weights":"gaussian"`:             "lora_bias: it needs init_lora_weights to be true or false",
		`"lora_bias":true,"use_dora":true`:                            "lora_bias: it does not go together with use_dora",
	} {
		c, err := lora.ParseConfig([]byte(`{"peft_type":"LORA",` + text + `}`))
		require.NoError(t, err, text)
		err = c.Validate()
		require.ErrorIs(t, err, lora.ErrConfig, text)
		assert.ErrorContains(t, err, want, text)
	}
}

// Every setting that is not computed here is refused by its name.
func TestUnsupported(t *testing.T) {
	for key, value := range map[string]string{
		"peft_type":               `"IA3"`,
		"alora_invocation_tokens": `[1,2]`,
		"arrow_config":            `{"top_k":3}`,
		"kasa_config":             `{"beta":0.1}`,
		"layer_replication":       `[[0,4],[2,5]]`,
		"megatron_config":         `{"a":1}`,
		"monteclora_config":       `{"a":1}`,
		"use_bdlora":              `{"a":1}`,
		"use_qalora":              `true`,
		"velora_config":           `{"a":1}`,
		"init_lora_weights":       `"corda"`,
		"init_lora_weights ":      `"lora_ga"`,
		"init_lora_weights  ":     `"loftq"`,
	} {
		key = strings.TrimSpace(key)
		text := `{"` + key + `":` + value + `}`
		if key != "peft_type" {
			text = `{"peft_type":"LORA",` + text[1:]
		}
		c, err := lora.ParseConfig([]byte(text))
		require.NoError(t, err)
		err = c.Validate()
		require.ErrorIs(t, err, lora.ErrUnsupported, text)
		assert.ErrorContains(t, err, key+": ")
	}
	// Settings of a method that is not chosen mean nothing to PEFT either.
	c, err := lora.ParseConfig([]byte(`{"peft_type":"LORA","corda_config":{"a":1},"eva_config":{"rho":2.0},"lora_ga_config":{"a":1},"loftq_config":{"loftq_bits":4},"arrow_config":{},"layer_replication":[],"alora_invocation_tokens":null}`))
	require.NoError(t, err)
	assert.NoError(t, c.Validate())
}

func TestCloneSharesNothing(t *testing.T) {
	c, err := lora.ParseConfig([]byte(`{"peft_type":"LORA","task_type":"CAUSAL_LM","target_modules":["a"],"rank_pattern":{"a":1},"alpha_pattern":{"a":1},
		"modules_to_save":["b"],"layers_to_transform":[1],"layers_pattern":["h"],"trainable_token_indices":[1],"exclude_modules":["c"]}`))
	require.NoError(t, err)
	before := string(c.JSON())
	d := c.Clone()
	d.TargetModules.Names[0], d.ExcludeModules.Names[0], d.ModulesToSave[0], d.LayersPattern[0] = "x", "x", "x", "x"
	d.RankPattern[0].R, d.AlphaPattern[0].Alpha, d.LayersToTransform[0], d.TrainableTokenIndices[0].Tokens[0] = 9, 9, 9, 9
	*d.TaskType = "x"
	assert.Equal(t, before, string(c.JSON()))
}

// Any configuration survives writing and reading.
func TestConfigProperty(t *testing.T) {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z_.é"\\🙂]{1,6}`), 0, 4, rapid.ID[string])
	rapid.Check(t, func(t *rapid.T) {
		c := lora.DefaultConfig()
		c.R = rapid.IntRange(1, 512).Draw(t, "r")
		c.LoraAlpha = rapid.Float64Range(0.001, 1e18).Draw(t, "alpha")
		c.LoraDropout = rapid.Float64Range(0, 1).Draw(t, "dropout")
		c.TargetModules.Names = names.Draw(t, "targets")
		slices.Sort(c.TargetModules.Names)
		c.ModulesToSave = names.Draw(t, "saved")
		c.LayersToTransform = rapid.SliceOfN(rapid.IntRange(0, 99), 0, 3).Draw(t, "layers")
		c.Revision = new(rapid.String().Draw(t, "revision"))
		for _, n := range names.Draw(t, "ranks") {
			c.RankPattern = append(c.RankPattern, lora.RankRule{Key: n, R: rapid.IntRange(1, 9).Draw(t, "rank")})
		}
		again, err := lora.ParseConfig(c.JSON())
		require.NoError(t, err)
		assert.Equal(t, string(c.JSON()), string(again.JSON()))
		assert.Equal(t, c.LoraAlpha, again.LoraAlpha)
		assert.Equal(t, c.RankPattern, again.RankPattern)
		assert.Equal(t, c.TargetModules.Names, again.TargetModules.Names)
		assert.Equal(t, *c.Revision, *again.Revision)
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(defaultJSON))
	f.Add([]byte(`{"peft_type":"LORA","target_modules":["q"],"rank_pattern":{"(?P<a>x)(?P=a)":2},"trainable_token_indices":{"e":[1]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := lora.ParseConfig(data)
		if err != nil {
			return
		}
		valid := c.Validate()
		again, err := lora.ParseConfig(c.JSON())
		require.NoError(t, err)
		require.Equal(t, string(c.JSON()), string(again.JSON()))
		require.Equal(t, valid == nil, again.Validate() == nil)
		if valid == nil {
			_, _ = lora.NewPlacement(c, lora.Model{Type: "llama", Modules: []lora.Module{{Name: "model.layers.0.q_proj", Kind: lora.Linear, In: 3, Out: 2}}})
		}
	})
}
