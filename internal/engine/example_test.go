package engine_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// A program that says how likely a text is, with an adapter and without: the
// weights of the model are on the device once.
func ExampleRuntime() {
	ctx := context.Background()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open("../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	adapter, err := lora.LoadState("../../testdata/lm/llama/adapters/lora", m, m.Config.ModelType, m.Modules())
	if err != nil {
		log.Fatal(err)
	}
	var text data.Batch
	text.Add([]int32{1, 2, 3, 4}, []int32{2, 3, 4, data.Ignore})

	r := engine.New(dev, m)
	defer r.Close()
	for _, state := range []*lora.State{nil, adapter} {
		slot, err := r.NewSlot(state)
		if err != nil {
			log.Fatal(err)
		}
		defer slot.Free()
		draft, err := r.Plan(slot, engine.Spec{Bounds: map[string]int{nn.Tokens: 8}, Build: func(b *nn.Builder, p *graph.Program) {
			p.Result("loss", m.Build(b).Loss(b, model.NextToken))
		}})
		if err != nil {
			log.Fatal(err)
		}
		programs, err := r.Load(ctx, slot, nil, draft)
		if err != nil {
			log.Fatal(err)
		}
		if err := programs[0].Run(ctx, slot, &text, text.Longest()); err != nil {
			log.Fatal(err)
		}
		var loss [1]float32
		if err := programs[0].Read(ctx, "loss", loss[:]); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%.3f\n", loss[0]/float32(text.LossTokens))
	}
	// Output:
	// 6.118
	// 6.613
}

// The rows of one batch have adapters of their own, or none: each text gets what its
// adapter alone would say.
func ExampleRuntime_NewMultiAdapter() {
	ctx := context.Background()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open("../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	r := engine.New(dev, m)
	defer r.Close()
	var slots []*engine.Slot
	for _, name := range []string{"lora", "dora"} {
		state, err := lora.LoadState("../../testdata/lm/llama/adapters/"+name, m, m.Config.ModelType, m.Modules())
		if err != nil {
			log.Fatal(err)
		}
		slot, err := r.NewSlot(state)
		if err != nil {
			log.Fatal(err)
		}
		defer slot.Free()
		slots = append(slots, slot)
	}
	mix := r.NewMultiAdapter(slots...)
	draft, err := r.Plan(mix, engine.Spec{Bounds: map[string]int{nn.Tokens: 8}, Build: func(b *nn.Builder, p *graph.Program) {
		logits := m.Build(b).Logits(b, graph.Tensor{})
		p.Result("next", logits.ArgMax().Cast(tensor.F32))
	}})
	if err != nil {
		log.Fatal(err)
	}
	programs, err := r.Load(ctx, mix, nil, draft)
	if err != nil {
		log.Fatal(err)
	}
	var texts data.Batch
	for range 3 {
		texts.Add([]int32{1, 2}, nil)
	}
	texts.SetInts(nn.Adapters, []int32{0, 0, 1, 1, -1, -1})
	if err := programs[0].Run(ctx, mix, &texts, texts.Longest()); err != nil {
		log.Fatal(err)
	}
	next := make([]float32, 6)
	if err := programs[0].Read(ctx, "next", next); err != nil {
		log.Fatal(err)
	}
	fmt.Println(next[1], next[3], next[5])
	// Output:
	// 216 158 350
}
