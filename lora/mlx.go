package lora

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// MLXWeightsFile is the name of the weights in an adapter folder of mlx-lm. Its other file has the
// name of PEFT's, ConfigFile, and other keys.
const MLXWeightsFile = "adapters.safetensors"

// mlxConfig has the keys of mlx-lm's adapter_config.json that describe an adapter. The others
// belong to its training.
type mlxConfig struct {
	FineTuneType string         `json:"fine_tune_type"`
	Layers       int            `json:"num_layers"`
	Parameters   *mlxParameters `json:"lora_parameters"`
}

// mlxParameters describes the layers: y = W·x + scale·(x·lora_a)·lora_b. In old files the scale is
// multiplied by alpha/rank.
type mlxParameters struct {
	Rank    int      `json:"rank"`
	Scale   float64  `json:"scale"`
	Alpha   *float64 `json:"alpha,omitempty"`
	Dropout float64  `json:"dropout"`
	Keys    []string `json:"keys,omitempty"`
}

// IsMLX reports whether dir holds an adapter of mlx-lm, by the content of its configuration.
func IsMLX(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	return err == nil && isMLX(data)
}

// isMLX reports whether a configuration is one of mlx-lm.
func isMLX(data []byte) bool {
	var keys map[string]json.RawMessage
	return json.Unmarshal(data, &keys) == nil && keys["lora_parameters"] != nil && keys["peft_type"] == nil
}

// loadMLX opens an adapter of mlx-lm, of which data is the configuration, as one of PEFT: A = lora_aᵀ, B = lora_bᵀ, and an alpha that
// gives the same scale. Its tensors are copies.
func loadMLX(dir string, data []byte) (*Adapter, error) {
	fail := func(kind error, format string, args ...any) (*Adapter, error) {
		return nil, fmt.Errorf("lora: adapter %s of MLX: %w: %w", dir, kind, fmt.Errorf(format, args...))
	}
	var m mlxConfig
	if err := json.Unmarshal(data, &m); err != nil || m.Parameters == nil {
		return fail(ErrConfig, "%s: %v", ConfigFile, err)
	}
	p := m.Parameters
	switch {
	case m.FineTuneType != "" && m.FineTuneType != "lora":
		return fail(ErrUnsupported, "fine_tune_type: found %q, expected lora", m.FineTuneType)
	case p.Rank < 1:
		return fail(ErrConfig, "lora_parameters: rank: found %d, expected 1 or more", p.Rank)
	case math.IsNaN(p.Scale) || math.IsInf(p.Scale, 0) || p.Scale == 0:
		return fail(ErrConfig, "lora_parameters: scale: found %v, expected a number other than 0", p.Scale)
	}
	path := filepath.Join(dir, MLXWeightsFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fail(ErrMissing, "%s, which mlx-lm writes beside %s; adapters.npz of older versions is not read", MLXWeightsFile, ConfigFile)
	}
	set, err := weights.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", dir, err)
	}
	defer set.Close()
	c := DefaultConfig()
	c.R, c.LoraAlpha, c.LoraDropout = p.Rank, p.Scale*float64(p.Rank), p.Dropout
	if p.Alpha != nil {
		c.LoraAlpha = p.Scale * *p.Alpha
	}
	var tensors []Tensor
	for _, name := range set.Names() {
		x, module, err := mlxTensor(set, name, p.Rank)
		if err != nil {
			return nil, fmt.Errorf("lora: adapter %s of MLX: %w", dir, err)
		}
		tensors = append(tensors, x)
		if !slices.Contains(c.TargetModules.Names, module) {
			c.TargetModules.Names = append(c.TargetModules.Names, module)
		}
	}
	if len(tensors) == 0 {
		return fail(ErrMissing, "%s has no tensors", MLXWeightsFile)
	}
	a, err := New(c, tensors)
	if err != nil {
		return nil, err
	}
	a.Dir, a.Source = dir, set.Origin()
	return a, nil
}

// mlxTensor returns a tensor of a file of mlx-lm under PEFT's key, and its module.
func mlxTensor(set *weights.Set, name string, rank int) (Tensor, string, error) {
	module, role, axis := strings.TrimSuffix(name, ".lora_a"), RoleA, 1
	if module == name {
		module, role, axis = strings.TrimSuffix(name, ".lora_b"), RoleB, 0
	}
	v, err := set.Lookup(name)
	switch {
	case err != nil:
		return Tensor{}, "", err
	case module == name:
		return Tensor{}, "", fmt.Errorf("tensor %q: %w: expected names that end in .lora_a or .lora_b", name, ErrUnmatched)
	case len(v.Shape) == 3:
		return Tensor{}, "", fmt.Errorf("tensor %q: %w: shape %v: layers of experts", name, ErrUnsupported, v.Shape)
	case len(v.Shape) != 2 || v.Shape[axis] != rank:
		want := "[inputs, rank]"
		if axis == 0 {
			want = "[rank, outputs]"
		}
		return Tensor{}, "", fmt.Errorf("tensor %q: %w: found %v, expected %s of the rank %d of lora_parameters", name, ErrShape, v.Shape, want, rank)
	}
	values, err := viewFloats(v)
	if err != nil {
		return Tensor{}, "", fmt.Errorf("tensor %q: %w", name, err)
	}
	t, err := float32Tensor(turned(values, v.Shape[0], v.Shape[1]), v.Shape[1], v.Shape[0])
	key := keyPrefix + module + map[Role]string{RoleA: ".lora_A.weight", RoleB: ".lora_B.weight"}[role]
	if strings.HasSuffix(module, "embed_tokens") {
		key = keyPrefix + module + map[Role]string{RoleA: ".lora_embedding_A", RoleB: ".lora_embedding_B"}[role]
	}
	return Tensor{key, t}, module, err
}

// viewFloats returns the elements of a tensor of a floating-point type.
func viewFloats(v *safetensors.View) (x []float32, err error) {
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil || !d.IsFloat() {
		return nil, fmt.Errorf("%w: found %v, expected a float", ErrDType, v.DType)
	}
	err = v.WithBytes(func(data []byte) error {
		x, err = tensor.Tensor{DType: d, Shape: v.Shape, Data: data}.Float32s()
		return err
	})
	return x, err
}

// inLayer matches names of modules in a numbered layer.
var inLayer = regexp.MustCompile(`^(.*\blayers)\.([0-9]+)\.(.+)$`)

// SaveMLX writes an adapter folder that mlx-lm loads, for a model of the given modules. MLX has one
// rank and one scale for all layers: lower ranks are padded with zeros, and other scales are in
// lora_b. Parts that mlx-lm does not have, see [Placement.CheckPlain], are rejected by name.
func SaveMLX(dir string, a *Adapter, p *Placement, modules []string) error {
	if err := p.CheckPlain("adapters of MLX"); err != nil {
		return fmt.Errorf("lora: adapter %s: %w", a.Dir, err)
	}
	if len(p.Targets) == 0 {
		return fmt.Errorf("lora: adapter %s: %w: it has no layers", a.Dir, ErrUnsupported)
	}
	rank := 0
	for _, t := range p.Targets {
		rank = max(rank, t.Rank)
	}
	m := mlxConfig{FineTuneType: "lora", Parameters: &mlxParameters{Rank: rank, Scale: p.Targets[0].Scale, Dropout: p.Config().LoraDropout}}
	var entries []safetensors.Entry
	for _, t := range p.Targets {
		w, err := a.Weights(t)
		if err != nil {
			return err
		}
		down, up := w[RoleA], w[RoleB]
		if t.Scale != m.Parameters.Scale {
			for i := range up {
				up[i] = float32(float64(up[i]) * (t.Scale / m.Parameters.Scale))
			}
		}
		down = append(down, make([]float32, (rank-t.Rank)*t.In)...)
		up = append(turned(up, t.Out, t.Rank), make([]float32, (rank-t.Rank)*t.Out)...)
		for _, x := range []struct {
			name   string
			values []float32
			shape  []int
		}{{".lora_a", turned(down, rank, t.In), []int{t.In, rank}}, {".lora_b", up, []int{rank, t.Out}}} {
			f, err := float32Tensor(x.values, x.shape...)
			if err != nil {
				return err
			}
			entries = append(entries, safetensors.Entry{Name: t.Name + x.name, DType: safetensors.F32, Shape: f.Shape, Data: f.Data})
		}
	}
	m.Layers, m.Parameters.Keys = mlxLayers(p, modules)
	config, err := json.MarshalIndent(m, "", "    ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("lora: save adapter: %w", err)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, MLXWeightsFile), entries, map[string]string{"format": "mlx"}, safetensors.Durable()); err != nil {
		return fmt.Errorf("lora: save adapter: %w", err)
	}
	if err := fsatomic.WriteFile(filepath.Join(dir, ConfigFile), config); err != nil {
		return fmt.Errorf("lora: save adapter: %w", err)
	}
	return nil
}

// mlxLayers returns how many of the last layers the targets begin in, and the names of the targets
// in a layer; targets outside layers have whole names.
func mlxLayers(p *Placement, modules []string) (layers int, keys []string) {
	count, first := 0, math.MaxInt
	number := func(name string) (int, string) {
		m := inLayer.FindStringSubmatch(name)
		if m == nil {
			return -1, name
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return -1, name
		}
		return n, m[3]
	}
	for _, name := range modules {
		n, _ := number(name)
		count = max(count, n+1)
	}
	for _, t := range p.Targets {
		n, key := number(t.Name)
		if n >= 0 {
			first = min(first, n)
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return max(0, count-first), keys
}
