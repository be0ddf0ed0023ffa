package train_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/task/flowmatching"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// hollow is a checkpoint in bf16 that has names and shapes, and holes for numbers, which
// take no room on a disk.
type hollow struct {
	header map[string]any
	bytes  int
}

func (h *hollow) add(name string, shape ...int) {
	n := 2
	for _, d := range shape {
		n *= d
	}
	h.header[name] = map[string]any{"dtype": "BF16", "shape": shape, "data_offsets": []int{h.bytes, h.bytes + n}}
	h.bytes += n
}

func (h *hollow) linear(name string, in, out int) {
	h.add(name+".weight", out, in)
	h.add(name+".bias", out)
}

func (h *hollow) save(t *testing.T, config string) (dir string) {
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o666))
	f, err := os.Create(filepath.Join(dir, "diffusion_pytorch_model.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	header, err := json.Marshal(h.header)
	require.NoError(t, err)
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	size := make([]byte, 8)
	for i := range size {
		size[i] = byte(len(header) >> (8 * i))
	}
	_, err = f.Write(append(size, header...))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(int64(8+len(header)+h.bytes)))
	return dir
}

// stream are the layers of one of two streams in a block.
func (h *hollow) stream(block, mod, ff string, attention [4]string, size int) {
	h.linear(block+mod, size, 6*size)
	for _, name := range attention {
		h.linear(block+"attn."+name, size, size)
	}
	h.linear(block+ff+".net.0.proj", size, 4*size)
	h.linear(block+ff+".net.2", 4*size, size)
}

// qkNorms are those of so many streams.
func (h *hollow) qkNorms(block string, names ...string) {
	for _, name := range names {
		h.add(block+"attn."+name+".weight", 128)
	}
}

var (
	imageLayers = [4]string{"to_q", "to_k", "to_v", "to_out.0"}
	textLayers  = [4]string{"add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"}
)

// qwenImage is Qwen-Image of so many blocks; 60 are the real one.
func qwenImage(t *testing.T, layers int) string {
	const size = 3072
	h := &hollow{header: map[string]any{}}
	h.linear("img_in", 64, size)
	h.linear("txt_in", 3584, size)
	h.add("txt_norm.weight", 3584)
	h.linear("time_text_embed.timestep_embedder.linear_1", 256, size)
	h.linear("time_text_embed.timestep_embedder.linear_2", size, size)
	for i := range layers {
		block := fmt.Sprintf("transformer_blocks.%d.", i)
		h.stream(block, "img_mod.1", "img_mlp", imageLayers, size)
		h.stream(block, "txt_mod.1", "txt_mlp", textLayers, size)
		h.qkNorms(block, "norm_q", "norm_k", "norm_added_q", "norm_added_k")
	}
	h.linear("norm_out.linear", size, 2*size)
	h.linear("proj_out", size, 64)
	return h.save(t, fmt.Sprintf(`{"_class_name": "QwenImageTransformer2DModel", "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": false,
		"in_channels": 64, "joint_attention_dim": 3584, "num_attention_heads": 24, "num_layers": %d, "out_channels": 16, "patch_size": 2}`, layers))
}

// flux is FLUX.1-dev of so many blocks of either kind; 19 and 38 are the real one.
func flux(t *testing.T, double, single int) string {
	const size = 3072
	h := &hollow{header: map[string]any{}}
	h.linear("x_embedder", 64, size)
	h.linear("context_embedder", 4096, size)
	for name, in := range map[string]int{"timestep_embedder": 256, "guidance_embedder": 256, "text_embedder": 768} {
		h.linear("time_text_embed."+name+".linear_1", in, size)
		h.linear("time_text_embed."+name+".linear_2", size, size)
	}
	for i := range double {
		block := fmt.Sprintf("transformer_blocks.%d.", i)
		h.stream(block, "norm1.linear", "ff", imageLayers, size)
		h.stream(block, "norm1_context.linear", "ff_context", textLayers, size)
		h.qkNorms(block, "norm_q", "norm_k", "norm_added_q", "norm_added_k")
	}
	for i := range single {
		block := fmt.Sprintf("single_transformer_blocks.%d.", i)
		h.linear(block+"norm.linear", size, 3*size)
		h.linear(block+"proj_mlp", size, 4*size)
		h.linear(block+"proj_out", 5*size, size)
		for _, name := range imageLayers[:3] {
			h.linear(block+"attn."+name, size, size)
		}
		h.qkNorms(block, "norm_q", "norm_k")
	}
	h.linear("norm_out.linear", size, 2*size)
	h.linear("proj_out", size, 64)
	return h.save(t, fmt.Sprintf(`{"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": true,
		"in_channels": 64, "joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": %d, "num_single_layers": %d, "patch_size": 1, "pooled_projection_dim": 768}`, double, single))
}

// TestPlansOfPictures: what a step of the real transformers takes on a device of its own
// memory, with rank 16 on the projections of attention, one picture of 1024² pixels and 512
// tokens of text, and what each switch saves. It prints the table that the documentation has:
//
//	LORAFUSE_LONG=1 go test ./internal/train -run TestPlansOfPictures -v
func TestPlansOfPictures(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("the files are larger than addresses")
	}
	for _, of := range []struct {
		name       string
		dir        string
		parameters int64
		trained    int
		most       int64 // of nf4 with checkpointing
	}{
		{"Qwen-Image", qwenImage(t, 60), 20_430_401_088, 23_592_960, 24e9},
		{"FLUX.1-dev", flux(t, 19, 38), 11_901_408_320, 18_677_760, 16e9},
	} {
		t.Run(of.name, func(t *testing.T) {
			if of.parameters > 12e9 && os.Getenv("LORAFUSE_LONG") == "" {
				t.Skip("LORAFUSE_LONG=1 plans it")
			}
			t.Logf("%-28s %10s %10s %10s %10s %10s", of.name, "weights", "adapter", "optimizer", "arena", "all")
			var before, last int64
			steps := []struct {
				name          string
				base          quant.Method
				checkpointing bool
				optimizer     trainer.Optimizer
			}{
				{"bf16", quant.None, false, ""}, {"+ checkpointing", quant.None, true, ""}, {"+ AdamW of 8 bits", quant.None, true, trainer.AdamW8bit},
				{"+ int8 base", "int8", true, trainer.AdamW8bit}, {"or fp8 base", "fp8", true, trainer.AdamW8bit}, {"or nf4 base", "nf4", true, trainer.AdamW8bit},
			}
			if os.Getenv("LORAFUSE_LONG") == "" {
				steps = steps[len(steps)-1:]
			}
			for _, step := range steps {
				m, err := model.Open(of.dir)
				require.NoError(t, err)
				defer m.Close()
				require.Equal(t, of.parameters, int64(m.Parameters()))
				require.NoError(t, m.Quantize(step.base, nil))
				family := m.Config.Family.(dit.Transformer)
				space := family.Space()
				axes := family.Bounds(1, dit.Sample{
					Latent: dit.Latent{Channels: space.Channels, Frames: 1, Height: 128, Width: 128},
					Prompt: dit.Prompt{Features: space.Text, Mask: make([]bool, 512)},
				})
				c := lora.DefaultConfig()
				c.R, c.LoraAlpha = 16, 16
				c.TargetModules = lora.ModuleSet{Names: []string{"to_k", "to_q", "to_v", "to_out.0"}}
				p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
				require.NoError(t, err)
				state, err := p.InitialState(m, 1)
				require.NoError(t, err)
				require.Equal(t, of.trained, state.Params())
				planner, err := train.NewPlanner(&null.Device{Precision: backend.BF16}, m, state)
				require.NoError(t, err)
				plan, err := planner.Memory(train.EngineOptions{
					Loss: flowmatching.Loss(axes), MaxTokens: 1, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, MaxGradNorm: 1}, Checkpointing: step.checkpointing, Optimizer: step.optimizer,
				})
				require.NoError(t, err)
				require.False(t, plan.InPlace)
				if strings.HasPrefix(step.name, "+") {
					before = last
				}
				saves := ""
				if last = plan.Total(); before > 0 {
					saves = "saves " + bytesize.Binary(before-last)
				}
				t.Logf("%-28s %10s %10s %10s %10s %10s %s", step.name, bytesize.Binary(plan.Weights+plan.Quantized), bytesize.Binary(plan.Adapter),
					bytesize.Binary(plan.Optimizer), bytesize.Binary(plan.Arena), bytesize.Binary(plan.Total()), saves)
			}
			require.LessOrEqual(t, last, of.most)
		})
	}
}
