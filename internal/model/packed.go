package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// This file reads what GPTQ and AWQ checkpoints say about their weights; weights.Set.Unpack reads
// the weights.

// packedConfig holds the settings of quantization_config for weights of GPTQ or AWQ.
type packedConfig struct {
	Tool string // as messages name it
	weights.Packing
}

// packedMethods reads a quantization_config by its quant_method.
var packedMethods = map[string]func(*Fields) *packedConfig{"gptq": (*Fields).gptq, "awq": (*Fields).awq}

// packedFiles are the configurations of GPTQ and AWQ in files of their own, which earlier versions
// of the tools write.
var packedFiles = []struct{ name, method string }{{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}}

// PackedFiles returns the names of these files.
func PackedFiles() (names []string) {
	for _, f := range packedFiles {
		names = append(names, f.name)
	}
	return names
}

// gptq reads the configuration of GPTQModel, AutoGPTQ, and transformers' GPTQConfig.
func (f *Fields) gptq() *packedConfig {
	c := &packedConfig{Tool: "GPTQ"}
	f.packing(c, "bits", "group_size")
	switch format := f.String("checkpoint_format", f.String("format", "gptq")); format {
	case "gptq":
		c.Shifted = true
	case "gptq_v2":
	case "gemm":
		c.AWQ = true
	default:
		f.Unsupported("checkpoint_format", format, []string{"gptq", "gptq_v2"})
	}
	if f.Bool("is_marlin_format", false) {
		f.Unsupported("is_marlin_format", true, []string{"false"})
	}
	return c
}

// awq reads the configuration of AutoAWQ, transformers' AwqConfig, and GPTQModel.
func (f *Fields) awq() *packedConfig {
	c := &packedConfig{Tool: "AWQ"}
	c.AWQ = true
	bits, group := "bits", "group_size"
	if f.Has("w_bit") {
		bits, group = "w_bit", "q_group_size"
	}
	f.packing(c, bits, group)
	for _, key := range []string{"version", "format", "checkpoint_format"} {
		if version := strings.ToLower(f.String(key, "gemm")); version != "gemm" {
			f.Unsupported(key, version, []string{"gemm"})
		}
	}
	return c
}

// packing reads the bits and group sizes that layers may have: the model's, and others that rules
// of the key dynamic give to some layers. The shapes of a layer's tensors show which of them it
// has, and whether it is quantised at all.
func (f *Fields) packing(c *packedConfig, bits, group string) {
	if v := f.String("pack_dtype", "int32"); v != "int32" {
		f.Unsupported("pack_dtype", v, []string{"int32"})
	}
	if f.Has("adapter") {
		f.Unsupported("adapter", string(f.values["adapter"]), []string{"null: an adapter of its own beside the model"})
	}
	add := func(o *Fields, size int) {
		n := o.Int(bits, 4)
		if n != 2 && n != 3 && n != 4 && n != 8 || c.AWQ && n != 4 {
			o.Unsupported(bits, n, []string{map[bool]string{false: "2, 3, 4, 8", true: "4"}[c.AWQ]})
		}
		if size = o.Int(group, size); size < 1 && size != -1 {
			o.Fail(group, size, "a number of at least 1, or -1")
		}
		c.Bits, c.Groups = append(c.Bits, n), append(c.Groups, size)
	}
	add(f, 128)
	if f.err != nil {
		return
	}
	const rules = "dynamic"
	all := f.Object(rules)
	for name := range ordered(all.values) {
		if strings.HasPrefix(name, "-:") {
			continue // layers that are not quantised
		}
		o := all.Object(name)
		if !o.given(bits) && o.values != nil {
			o.values[bits] = f.values[bits]
		}
		add(o, c.Groups[0])
		if err := errors.Join(all.err, o.err); err != nil && f.err == nil {
			f.err = fmt.Errorf("%s: %s: %w", rules, name, err)
		}
	}
}

// unpack returns the weights of a model's folder after unpacking those of GPTQ or AWQ. It closes
// set if it fails.
func (c *Config) unpack(dir string, set *weights.Set) (u *weights.Set, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, set.Close())
		}
	}()
	if c.packed == nil && set.HasPacked() {
		if c.packed, err = readPacked(dir); err != nil {
			return nil, err
		}
	}
	if c.packed == nil {
		return set, nil
	}
	if u, err = set.Unpack(c.packed.Packing); err != nil {
		return nil, err
	}
	if len(u.PackedWeights()) == 0 {
		return nil, fmt.Errorf("%w: quantization_config: found no layer of %s in the files, expected tensors …qweight", ErrConfig, c.packed.Tool)
	}
	for _, name := range u.Names() {
		if strings.HasSuffix(name, ".act.scales") {
			return nil, fmt.Errorf("%w: tensor %q scales activations", ErrUnsupported, name)
		}
	}
	return u, nil
}

// readPacked reads the configuration of GPTQ or AWQ that is a file of its own.
func readPacked(dir string) (*packedConfig, error) {
	for _, file := range packedFiles {
		path := filepath.Join(dir, file.name)
		raw, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f, err := ParseFields(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		c := packedMethods[file.method](f)
		if f.err != nil {
			return nil, fmt.Errorf("%s: %w", path, f.err)
		}
		return c, nil
	}
	return nil, fmt.Errorf("%w: quantization_config: found nothing, and tensors …qweight in the files, expected the settings of GPTQ or AWQ there or in quantize_config.json", ErrConfig)
}

// checkPacked refuses packed weights of layers that store theirs transposed.
func (m *Model) checkPacked() error {
	for _, module := range m.modules {
		if name := m.inFile(module.Name + weightSuffix); module.Kind == nn.KindConv1D && slices.Contains(m.set.PackedWeights(), name) {
			return fmt.Errorf("%w: %q is stored transposed, and quantised by %s; use the unquantised checkpoint", ErrUnsupported, name, m.Config.packed.Tool)
		}
	}
	return nil
}

// addPacked adds the weights that GPTQ or AWQ has quantised.
func (q *Quantization) addPacked(m *Model) {
	if m.Config.packed == nil {
		return
	}
	q.Stored, q.Tool = true, m.Config.packed.Tool
	for _, name := range m.set.PackedWeights() {
		if b, ok, err := m.set.Blocks(name); ok && err == nil {
			q.add(name, b.DType, b.View.Len(), b.Shape)
			continue
		}
		q.Widened = append(q.Widened, name)
	}
	if len(q.Weights) == 0 {
		q.DType = tensor.Invalid
	}
}
