package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// The base model: a FLUX with two double and four single blocks. A token is a square of 4×4
// pixels.
const (
	doubles, singles = 2, 4
	heads, headSize  = 4, 32
	width            = heads * headSize
	channels         = 3 * 4 * 4
)

// begin writes a pipeline whose transformer has random weights. As usual for adaptive norms
// (Peebles and Xie 2023, arXiv 2212.09748), each block initially adds zero.
func begin(dir string) error {
	files := map[string]any{
		"model_index.json": map[string]any{
			"_class_name": "FluxPipeline", "transformer": [2]string{"diffusers", "FluxTransformer2DModel"},
			"scheduler": [2]string{"diffusers", "FlowMatchEulerDiscreteScheduler"},
		},
		"scheduler/scheduler_config.json": map[string]any{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0},
		"transformer/config.json": map[string]any{
			"_class_name": "FluxTransformer2DModel", "attention_head_dim": headSize, "axes_dims_rope": [3]int{8, 12, 12},
			"guidance_embeds": false, "in_channels": channels, "joint_attention_dim": features, "num_attention_heads": heads,
			"num_layers": doubles, "num_single_layers": singles, "patch_size": 1, "pooled_projection_dim": features,
		},
	}
	for name, content := range files {
		raw, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, append(raw, '\n'), 0o666); err != nil {
			return err
		}
	}
	return safetensors.WriteFile(filepath.Join(dir, transformerFile), weights(), map[string]string{"format": "pt"})
}

// finish writes a pipeline with trained weights, in bf16.
func finish(from, adapter, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	m, err := model.Open(filepath.Join(from, "transformer"))
	if err != nil {
		return err
	}
	defer m.Close()
	a, err := lora.Load(adapter)
	if err != nil {
		return err
	}
	defer a.Close()
	p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
	if err != nil {
		return err
	}
	merger, err := lora.NewMerger(a, p)
	if err != nil {
		return err
	}
	all := weights()
	for i, e := range all {
		w, err := tensor.Tensor{DType: tensor.F32, Shape: e.Shape, Data: e.Data}.Float32s()
		if err != nil {
			return err
		}
		if _, err := merger.Merge(e.Name, w, tensor.F32); err != nil {
			return err
		}
		x, err := tensor.Tensor{DType: tensor.F32, Shape: e.Shape, Data: tensor.BytesOf(w)}.Convert(tensor.BF16)
		if err != nil {
			return err
		}
		all[i].DType, all[i].Data = safetensors.BF16, x.Data
	}
	return safetensors.WriteFile(filepath.Join(to, transformerFile), all, map[string]string{"format": "pt"})
}

const transformerFile = "transformer/diffusion_pytorch_model.safetensors"

// weights returns random weights for the transformer.
func weights() (all []safetensors.Entry) {
	add := func(name string, values []float32, shape ...int) {
		all = append(all, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: shape, Data: tensor.BytesOf(values)})
	}
	linear := func(name string, out, in int) {
		w := make([]float32, out*in)
		if !zero(name) {
			h := fnv.New64a()
			h.Write([]byte(name))
			s := philox.NewStream(h.Sum64(), 0, 0)
			for i := range w {
				w[i] = float32(s.Normal(uint64(i)) / math.Sqrt(2*float64(in)))
			}
		}
		add(name+".weight", w, out, in)
		add(name+".bias", make([]float32, out), out)
	}
	ones := func(name string) {
		w := make([]float32, headSize)
		for i := range w {
			w[i] = 1
		}
		add(name+".weight", w, headSize)
	}
	mlp := func(name string, in int) {
		linear(name+".linear_1", width, in)
		linear(name+".linear_2", width, width)
	}
	linear("x_embedder", width, channels)
	linear("context_embedder", width, features)
	mlp("time_text_embed.timestep_embedder", 256)
	mlp("time_text_embed.text_embedder", features)
	for i := range doubles {
		b := fmt.Sprintf("transformer_blocks.%d.", i)
		linear(b+"norm1.linear", 6*width, width)
		linear(b+"norm1_context.linear", 6*width, width)
		for _, name := range []string{"to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"} {
			linear(b+"attn."+name, width, width)
		}
		for _, name := range []string{"norm_q", "norm_k", "norm_added_q", "norm_added_k"} {
			ones(b + "attn." + name)
		}
		for _, name := range []string{"ff", "ff_context"} {
			linear(b+name+".net.0.proj", 4*width, width)
			linear(b+name+".net.2", width, 4*width)
		}
	}
	for i := range singles {
		b := fmt.Sprintf("single_transformer_blocks.%d.", i)
		linear(b+"norm.linear", 3*width, width)
		for _, name := range []string{"to_q", "to_k", "to_v"} {
			linear(b+"attn."+name, width, width)
		}
		ones(b + "attn.norm_q")
		ones(b + "attn.norm_k")
		linear(b+"proj_mlp", 4*width, width)
		linear(b+"proj_out", width, 5*width)
	}
	linear("norm_out.linear", 2*width, width)
	linear("proj_out", channels, width)
	return all
}

// zero reports whether a layer is initialized to zero.
func zero(name string) bool {
	return name == "proj_out" || strings.HasSuffix(name, "norm1.linear") || strings.HasSuffix(name, "norm1_context.linear") ||
		strings.HasSuffix(name, "norm.linear") || strings.HasSuffix(name, "norm_out.linear")
}
