package lora_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// An adapter for two layers of a model is begun, and merged into one of them.
func Example() {
	model := lora.Model{Type: "llama", Modules: []lora.Module{
		{Name: "model.layers.0.self_attn.q_proj", Kind: lora.Linear, In: 4, Out: 2},
		{Name: "model.layers.0.self_attn.k_proj", Kind: lora.Linear, In: 4, Out: 2},
		{Name: "model.layers.1.self_attn.q_proj", Kind: lora.Linear, In: 4, Out: 2},
	}}
	config := lora.DefaultConfig()
	config.R, config.LoraAlpha = 1, 2
	config.TargetModules.Names = []string{"q_proj"}
	placed, err := lora.NewPlacement(config, model)
	if err != nil {
		fmt.Println(err)
		return
	}
	var tensors []lora.Tensor
	for _, target := range placed.Targets {
		w, _ := target.Initialize(42, nil)
		copy(w[lora.RoleA], []float32{1, 2, 3, 4}) // stands in for training
		copy(w[lora.RoleB], []float32{0.5, -1})
		own, _ := w.Tensors(target)
		tensors = append(tensors, own...)
		fmt.Println(target.Name, "rank", target.Rank, "scale", target.Scale)
	}
	adapter, err := lora.New(placed.Config(), tensors)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("check:", adapter.Check(placed, lora.CheckOptions{}).Err())

	merger, err := lora.NewMerger(adapter, placed)
	if err != nil {
		fmt.Println(err)
		return
	}
	weight := make([]float32, 8)
	changed, err := merger.Merge("model.layers.1.self_attn.q_proj.weight", weight, tensor.F32)
	fmt.Println(changed, err, weight)
	// Output:
	// model.layers.0.self_attn.q_proj rank 1 scale 2
	// model.layers.1.self_attn.q_proj rank 1 scale 2
	// check: <nil>
	// true <nil> [1 2 3 4 -2 -4 -6 -8]
}

func ExampleLayer() {
	layer := &lora.Layer{In: 3, Out: 2, Rank: 1, Alpha: 4, A: []float32{1, 2, 3}, B: []float32{10, -1}}
	y := make([]float32, 2)
	err := layer.Forward(y, []float32{1, 1, 1}, 1)
	fmt.Println(layer.NumParams(), y, err)
	// Output: 5 [240 -24] <nil>
}

// A layer is trained alone, to do what a weight lacks: loss, gradients and the
// optimizer's step are tensors of one graph.
func ExampleLayer_training() {
	dev, err := cpu.Open(backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	defer e.Close()
	layer, err := lora.NewLayer(4, 2, 2, 4, 42)
	if err != nil {
		log.Fatal(err)
	}
	adamw, err := graph.NewAdamW(graph.AdamWOptions{Rate: 0.01})
	if err != nil {
		log.Fatal(err)
	}

	g := graph.New()
	x := g.Floats([]float32{1, 0, 2, -1, 0, 1, -1, 1, 2, 1, 0, 1}, 3, 4)
	w := g.Floats([]float32{1, 0, 0, 0, 0, 1, 0, 0}, 2, 4)
	want := g.Floats([]float32{3, -1, -1, 2, 2, 1}, 3, 2)
	y := layer.Linear(x, w, graph.Tensor{}, graph.Tensor{})
	loss := y.Sub(want).SumSquares().Scale(1.0 / 6)
	for i := range 201 {
		l, err := adamw.Step(context.Background(), e, loss, layer.Params(g)...)
		if err != nil {
			log.Fatal(err)
		}
		if i%100 == 0 {
			fmt.Printf("step %3d: loss %.2f\n", i, l)
		}
	}
	// Output:
	// step   0: loss 1.17
	// step 100: loss 0.02
	// step 200: loss 0.01
}

// A request leases the adapter that it names. One of other bytes takes the name
// while the first is in use.
func ExampleRegistry() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "adapters")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	modules := []nn.Module{{Name: "model.layers.0.self_attn.q_proj", Kind: nn.KindLinear, In: 4, Out: 2}}
	train := func(dir string, b float32) { // stands in for training
		config := lora.DefaultConfig()
		config.R, config.TargetModules.Names = 1, []string{"q_proj"}
		placed, err := lora.NewPlacement(config, lora.ModelOf("llama", modules))
		if err != nil {
			log.Fatal(err)
		}
		w := lora.Weights{lora.RoleA: []float32{1, 2, 3, 4}, lora.RoleB: []float32{b, -b}}
		tensors, err := w.Tensors(placed.Targets[0])
		if err == nil {
			err = lora.Save(dir, config, tensors)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	train(filepath.Join(folder, "sql-v1"), 1)
	train(filepath.Join(folder, "sql-v2"), 2)

	r, err := lora.NewRegistry(nil, "llama", modules, lora.RegistryOptions{Root: folder, HostBytes: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Load(ctx, "sql", filepath.Join(folder, "sql-v1")); err != nil {
		log.Fatal(err)
	}
	first, err := r.Acquire(ctx, "sql")
	if err != nil {
		log.Fatal(err)
	}
	defer first.Release()
	if _, err := r.Load(ctx, "sql", filepath.Join(folder, "sql-v2")); err != nil {
		log.Fatal(err)
	}
	second, err := r.Acquire(ctx, "sql-v2") // a folder of Root
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release()
	for _, lease := range []*lora.Lease{first, second} {
		fmt.Println(lease.Version().State().Values["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"])
	}
	for _, info := range r.List() {
		v := info.Versions[0]
		fmt.Printf("%s: %s, on the %v, %d leases\n", info.Name, v.Summary, v.Location, v.Leases)
	}
	_, err = r.Acquire(ctx, "sql-v3")
	fmt.Println(err)
	// Output:
	// [1 -1]
	// [2 -2]
	// sql: rank 1, alpha 8, 1 targets, on the host, 1 leases
	// sql-v2: rank 1, alpha 8, 1 targets, on the host, 1 leases
	// lora: "sql-v3": adapter not found, did you mean "sql-v1" or "sql-v2"?
}
