package gpu_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/plan"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// decomposed lists the operations of these programs that have no kernel: attention with a head of 512 channels.
var decomposed = []string{"Attention"}

// TestPrices compares the cost of real programs with testdata/prices.md.
//
//	go test ./backend/gpu -run TestPrices -update
func TestPrices(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("the files are larger than addresses")
	}
	update := flag.Lookup("update").Value.String() == "true"
	golden := filepath.Join("testdata", "prices.md")
	before, err := os.ReadFile(golden)
	if !update {
		require.NoError(t, err)
	}
	var lines []string
	found, bytes := map[string]bool{}, map[string]int{}
	for _, p := range priced(t) {
		for _, d := range plan.Devices() {
			c, err := d.Count(p)
			require.NoError(t, err)
			for op := range c.Decomposed {
				found[op] = true
			}
			bytes[d.Name+" "+p.Name] = c.Read + c.Written
			table := strings.Split(plan.Markdown([]plan.Cost{c}), "\n")
			if lines == nil {
				lines = table[:2]
			}
			lines = append(lines, table[2])
		}
	}
	assert.Equal(t, decomposed, slices.Sorted(maps.Keys(found)), "operations that run without a kernel of their own")
	for _, d := range plan.Devices() {
		decode := d.Name + " 8B: decode step"
		for method, least := range map[string]float64{"fp8": 1.6, "int8": 1.6, "nf4": 2.2} {
			assert.GreaterOrEqual(t, float64(bytes[decode]), least*float64(bytes[decode+", "+method]), "%s of %s and bf16 weights", decode, method)
		}
		for _, name := range []string{decodeStep, servedStep, trainStep} {
			name = fmt.Sprintf("%s 8B: %s, fp8", d.Name, name)
			assert.InEpsilon(t, bytes[name], bytes[name+" in blocks of 128"], 0.01, name)
		}
	}
	got := strings.Join(lines, "\n") + "\n"
	if update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
		return
	}
	require.Equal(t, string(before), got)
}

// priced returns the programs. Their weights are holes in files.
func priced(t *testing.T) (all []plan.Program) {
	t.Helper()
	llama, err := checkpoint.ByName("llama-8b")
	require.NoError(t, err)
	for _, x := range []struct {
		name  string
		write func(dir string) error
	}{{"8B", llama.WriteEmpty}, {"FLUX block", checkpoint.FluxBlock.WriteEmpty}, {"Qwen-Image block", writeQwenImageBlock}, {"VAE level of 128 channels", writeVAELevel}, {"FLUX VAE", writeFluxVAE}} {
		dir := t.TempDir()
		require.NoError(t, x.write(dir))
		m, err := model.Open(dir)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, m.Close()) })
		programs, err := plan.List(m, plan.Options{Tokens: 8192, Context: 1024, Rank: 16})
		require.NoError(t, err)
		for _, p := range programs {
			p.Name = x.name + ": " + p.Name
			all = append(all, p)
		}
		if x.name == "8B" {
			all = append(all, quantized(t, dir)...)
			blocks := t.TempDir()
			require.NoError(t, writeFloat8Blocks(blocks, dir))
			all = append(all, stored(t, blocks, "fp8 in blocks of 128")...)
		}
	}
	return append(all, operations()...)
}

// Programs of quantized models.
const (
	decodeStep = "decode step"
	servedStep = "served step, 64 × 1,024 tokens"
	trainStep  = "training step, 8,192 tokens"
)

// quantized returns programs of the model in a folder with quantized weights.
func quantized(t *testing.T, dir string) (all []plan.Program) {
	t.Helper()
	for _, q := range []struct {
		method quant.Method
		names  []string
	}{{quant.Fp8, []string{decodeStep, servedStep, trainStep}}, {quant.Int8, []string{decodeStep}}, {quant.Bit4, []string{decodeStep}}} {
		m := openModel(t, dir)
		require.NoError(t, m.Quantize(q.method, nil))
		all = append(all, programsOf(t, m, string(q.method), q.names...)...)
	}
	return all
}

// stored returns programs of the model in a folder whose files have quantized weights.
func stored(t *testing.T, dir, weights string) []plan.Program {
	t.Helper()
	return programsOf(t, openModel(t, dir), weights, decodeStep, servedStep, trainStep)
}

func openModel(t *testing.T, dir string) *model.Model {
	t.Helper()
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	return m
}

// programsOf returns the named programs of a model, with a note on its weights.
func programsOf(t *testing.T, m *model.Model, weights string, names ...string) (all []plan.Program) {
	t.Helper()
	programs, err := plan.List(m, plan.Options{Tokens: 8192, Context: 1024, Rank: 16})
	require.NoError(t, err)
	for _, p := range programs {
		if slices.Contains(names, p.Name) {
			p.Name = fmt.Sprintf("8B: %s, %s", p.Name, weights)
			all = append(all, p)
		}
	}
	return all
}

// writeFloat8Blocks writes the checkpoint in a folder with the layers in 8-bit floats and a scale for each block of 128 by
// 128, as DeepSeek-V3 and Qwen3-FP8 have them.
func writeFloat8Blocks(dir, from string) error {
	text, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		return err
	}
	config := map[string]any{}
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	config["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{128, 128}}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	f, err := safetensors.Open(filepath.Join(from, checkpoint.WeightsFile))
	if err != nil {
		return err
	}
	defer f.Close()
	var entries []safetensors.Entry
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		if err != nil {
			return err
		}
		e := safetensors.Entry{Name: name, DType: v.DType, Shape: v.Shape}
		if module, ok := strings.CutSuffix(name, "_proj.weight"); ok {
			e.DType = safetensors.F8E4M3
			entries = append(entries, safetensors.Entry{Name: module + "_proj.weight_scale_inv", DType: safetensors.F32, Shape: []int{v.Shape[0] / 128, v.Shape[1] / 128}})
		}
		entries = append(entries, e)
	}
	return checkpoint.WriteEmpty(dir, checkpoint.WeightsFile, text, entries)
}

// tensors lists weights of a file.
type tensors []safetensors.Entry

func (l *tensors) add(name string, shape ...int) {
	*l = append(*l, safetensors.Entry{Name: name, DType: safetensors.BF16, Shape: shape})
}

// layer adds a linear layer or, with more sizes, a convolution.
func (l *tensors) layer(name string, shape ...int) {
	l.add(name+".weight", shape...)
	l.add(name+".bias", shape[0])
}

const diffusersWeights = "diffusion_pytorch_model.safetensors"

// writeQwenImageBlock writes Qwen-Image with one of its 60 blocks.
func writeQwenImageBlock(dir string) error {
	const size, text = 3072, 3584
	var l tensors
	l.layer("img_in", size, 64)
	l.layer("txt_in", size, text)
	l.add("txt_norm.weight", text)
	l.layer("time_text_embed.timestep_embedder.linear_1", size, 256)
	l.layer("time_text_embed.timestep_embedder.linear_2", size, size)
	l.layer("norm_out.linear", 2*size, size)
	l.layer("proj_out", 64, size)
	const block = "transformer_blocks.0."
	for _, stream := range []string{"img", "txt"} {
		l.layer(block+stream+"_mod.1", 6*size, size)
		l.layer(block+stream+"_mlp.net.0.proj", 4*size, size)
		l.layer(block+stream+"_mlp.net.2", size, 4*size)
	}
	for _, name := range []string{"to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"} {
		l.layer(block+"attn."+name, size, size)
	}
	for _, name := range []string{"norm_q", "norm_k", "norm_added_q", "norm_added_k"} {
		l.add(block+"attn."+name+".weight", 128)
	}
	return checkpoint.WriteEmpty(dir, diffusersWeights, []byte(`{"_class_name": "QwenImageTransformer2DModel", "num_layers": 1}`), l)
}

// writeVAE writes an autoencoder of FLUX.1's architecture with the given channels of its levels. Each level of the
// encoder has the given number of residual blocks. If attention is false, the middle has none.
func writeVAE(dir string, widths []int, layers int, attention bool) error {
	const latent = 16
	var l tensors
	block := func(name string, in, out int) {
		l.layer(name+".norm1", in)
		l.layer(name+".conv1", out, in, 3, 3)
		l.layer(name+".norm2", out)
		l.layer(name+".conv2", out, out, 3, 3)
		if in != out {
			l.layer(name+".conv_shortcut", out, in, 1, 1)
		}
	}
	half := func(part string, widths []int, layers, middle, colours, moments int, levels, change string) {
		first, last := widths[0], widths[len(widths)-1]
		l.layer(part+".conv_in", first, colours, 3, 3)
		for i, width := range widths {
			for j := range layers {
				block(fmt.Sprintf("%s.%s.%d.resnets.%d", part, levels, i, j), first, width)
				first = width
			}
			if i < len(widths)-1 {
				l.layer(fmt.Sprintf("%s.%s.%d.%s.0.conv", part, levels, i, change), width, width, 3, 3)
			}
		}
		for _, n := range []string{"0", "1"} {
			block(part+".mid_block.resnets."+n, middle, middle)
		}
		if attention {
			l.layer(part+".mid_block.attentions.0.group_norm", middle)
			for _, n := range []string{"to_q", "to_k", "to_v", "to_out.0"} {
				l.layer(part+".mid_block.attentions.0."+n, middle, middle)
			}
		}
		l.layer(part+".conv_norm_out", last)
		l.layer(part+".conv_out", moments, last, 3, 3)
	}
	middle := widths[len(widths)-1]
	half("encoder", widths, layers, middle, 3, 2*latent, "down_blocks", "downsamplers")
	up := slices.Clone(widths)
	slices.Reverse(up)
	half("decoder", up, layers+1, middle, latent, 3, "up_blocks", "upsamplers")
	config, err := json.Marshal(map[string]any{"_class_name": "AutoencoderKL", "block_out_channels": widths, "layers_per_block": layers, "latent_channels": latent,
		"mid_block_add_attention": attention, "use_quant_conv": false, "use_post_quant_conv": false})
	if err != nil {
		return err
	}
	return checkpoint.WriteEmpty(dir, diffusersWeights, config, l)
}

func writeVAELevel(dir string) error { return writeVAE(dir, []int{128}, 1, false) }

func writeFluxVAE(dir string) error { return writeVAE(dir, []int{128, 256, 512, 512}, 2, true) }

// operations returns programs of one operation.
func operations() []plan.Program {
	f32 := func(g *graph.Graph, name string, shape ...int) graph.Tensor {
		return g.Param(name, tensor.F32, ir.ShapeOf(shape...)...)
	}
	program := func(name string, build func(g *graph.Graph, p *graph.Program)) plan.Program {
		return plan.Program{Name: name, Plan: func(dev backend.Device) (*ir.Program, error) {
			g := graph.New()
			p := g.Program()
			build(g, p)
			return p.Plan(dev.Supports)
		}}
	}
	all := []plan.Program{
		program("16 adapters r 16, x·Aᵀ of 8,192 rows, forward and both gradients", func(g *graph.Graph, p *graph.Program) {
			x := f32(g, "x", 8192, 4096)
			product, wrt := ir.RowsProduct{X: x.Value(), Index: g.Param("index", tensor.I32, ir.Static(8192)).Value(), TB: true}, []graph.Tensor{x}
			for i := range 16 {
				w := f32(g, fmt.Sprintf("a%d", i), 16, 4096)
				product.Weights, wrt = append(product.Weights, w.Value()), append(wrt, w)
			}
			y := g.Of(g.IR().RowsGemm(product))
			for i, d := range g.GradientsWith(y.Mul(y).Sum(1).Sum(0), wrt, ir.GradOptions{}) {
				p.Result(fmt.Sprintf("gradient%d", i), d)
			}
		}),
		program("LayerNorm [4608, 3072]", func(g *graph.Graph, p *graph.Program) {
			p.Result("y", g.Of(g.IR().LayerNorm(f32(g, "x", 4608, 3072).Value(), 0, 0, 1e-6)))
		}),
		program("Conv2D 3×3 at 512² × 128", func(g *graph.Graph, p *graph.Program) {
			w := g.Param("w", tensor.BF16, ir.ShapeOf(128, 3, 3, 128)...)
			p.Result("y", g.Of(g.IR().Apply(ir.Conv2D, ir.Conv2DAttr{Stride: 1, Top: 1, Left: 1, Bottom: 1, Right: 1}, f32(g, "x", 1, 512, 512, 128).Value(), w.Value())))
		}),
		program("TopK 8 of 128, 4,096 rows", func(g *graph.Graph, p *graph.Program) {
			v, i := g.IR().TopK(f32(g, "x", 4096, 128).Value(), 8)
			p.Result("values", g.Of(v)).Result("indices", g.Of(i))
		}),
	}
	attr := ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
	for _, n := range []int{14, 448} {
		all = append(all, program(fmt.Sprintf("AdamW of %d tensors [4096, 16]", n), func(g *graph.Graph, p *graph.Program) {
			rates, scale := f32(g, "rates", 3), f32(g, "scale")
			for i := range n {
				name := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
				w, m, v := f32(g, name("w"), 4096, 16).AdamW(f32(g, name("m"), 4096, 16), f32(g, name("v"), 4096, 16), f32(g, name("g"), 4096, 16), rates, scale, attr)
				p.Update(name("w"), w).Update(name("m"), m).Update(name("v"), v)
			}
		}), program(fmt.Sprintf("AdamW8 of %d tensors [4096, 16]", n), func(g *graph.Graph, p *graph.Program) {
			rates, scale, codes := f32(g, "rates", 3), f32(g, "scale"), g.Param("maps", ir.AdamW8Maps.DType, ir.AdamW8Maps.Shape...)
			t := ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(4096, 16)}
			for i := range n {
				name := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
				var in []graph.Tensor
				for _, s := range []string{"m", "v"} {
					in = append(in, g.Param(name(s), tensor.U8, t.Shape...))
				}
				for _, s := range []string{"ms", "vs"} {
					in = append(in, g.Param(name(s), ir.AdamW8Scales(t).DType, ir.AdamW8Scales(t).Shape...))
				}
				out := f32(g, name("w"), 4096, 16).AdamW8(in[0], in[1], in[2], in[3], f32(g, name("g"), 4096, 16), codes, rates, scale, attr)
				for k, s := range []string{"w", "m", "v", "ms", "vs"} {
					p.Update(name(s), out[k])
				}
			}
		}))
	}
	return all
}
