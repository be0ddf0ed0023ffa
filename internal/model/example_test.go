package model_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/model"
)

// A checkpoint is opened without reading its weights: they are mapped, and
// checked against what config.json says.
func ExampleOpen() {
	m, err := model.Open("../../testdata/lm/qwen2/model-sharded")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	fmt.Println(m.Config.Architecture, m.Config.Layers, "layers", m.Parameters(), "parameters")
	fmt.Println(m.Modules()[2].Name)
	// Output:
	// Qwen2ForCausalLM 2 layers 107072 parameters
	// model.layers.0.self_attn.q_proj
}
