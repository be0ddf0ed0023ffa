package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/safetensors"
)

// WriteEmpty writes the same folder as [Shape.Write], but with sparse weight files that use no disk space and read as
// zeros. It is meant for devices that generate their own weights.
func (s Shape) WriteEmpty(dir string) error {
	config, err := s.config()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return WriteEmpty(dir, WeightsFile, config, s.entries())
}

// WriteEmpty writes a folder of any model: a configuration, and tensors that read as zeros, in a sparse file named
// weights.
func WriteEmpty(dir, weights string, config []byte, entries []safetensors.Entry) (err error) {
	type tensor struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	tensors, end := map[string]tensor{}, int64(0)
	for _, e := range entries {
		n, err := e.Size()
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		tensors[e.Name] = tensor{e.DType.String(), e.Shape, [2]int64{end, end + n}}
		end += n
	}
	header, err := json.Marshal(tensors)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	header = append(header, strings.Repeat(" ", -len(header)&7)...)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, weights))
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	_, err = f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...))
	if err == nil {
		err = f.Truncate(8 + int64(len(header)) + end) // the rest is a hole
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Flux is a FLUX.1 of a number of heads of 128, with one block of two streams and none of
// one.
type Flux struct{ Heads, Text, Pooled int }

// FluxBlock has the sizes of FLUX.1-dev.
var FluxBlock = Flux{Heads: 24, Text: 4096, Pooled: 768}

// Hidden returns the number of channels.
func (f Flux) Hidden() int { return 128 * f.Heads }

// WriteEmpty makes the folder of its transformer, as [Shape.WriteEmpty] does.
func (f Flux) WriteEmpty(dir string) error {
	config, err := json.Marshal(map[string]any{
		"_class_name": "FluxTransformer2DModel", "num_layers": 1, "num_single_layers": 0, "num_attention_heads": f.Heads, "attention_head_dim": 128,
		"in_channels": 64, "joint_attention_dim": f.Text, "pooled_projection_dim": f.Pooled, "guidance_embeds": true, "patch_size": 1, "axes_dims_rope": []int{16, 56, 56},
	})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	h := f.Hidden()
	var entries []safetensors.Entry
	linear := func(name string, out, in int) {
		entries = append(entries, random(name+".weight", out, in), random(name+".bias", out))
	}
	for name, in := range map[string]int{"timestep": 256, "guidance": 256, "text": f.Pooled} {
		linear("time_text_embed."+name+"_embedder.linear_1", h, in)
		linear("time_text_embed."+name+"_embedder.linear_2", h, h)
	}
	linear("x_embedder", h, 64)
	linear("context_embedder", h, f.Text)
	linear("norm_out.linear", 2*h, h)
	linear("proj_out", 64, h)
	const block = "transformer_blocks.0."
	for _, of := range []string{"", "_context"} {
		linear(block+"norm1"+of+".linear", 6*h, h)
		linear(block+"ff"+of+".net.0.proj", 4*h, h)
		linear(block+"ff"+of+".net.2", h, 4*h)
	}
	for _, name := range []string{"to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"} {
		linear(block+"attn."+name, h, h)
	}
	for _, name := range []string{"norm_q", "norm_k", "norm_added_q", "norm_added_k"} {
		entries = append(entries, ones(block+"attn."+name+".weight", 128))
	}
	return WriteEmpty(dir, "diffusion_pytorch_model.safetensors", config, entries)
}
