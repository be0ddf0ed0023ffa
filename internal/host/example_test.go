package host_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Compute the loss of texts. The program is compiled for the first one.
func ExampleHost_Compute() {
	ctx := context.Background()
	m, err := model.Open("../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	h := host.Open(dev, m)
	defer h.Close()
	slot, err := h.NewSlot(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer slot.Free()

	loss := engine.Spec{Name: "loss", Bounds: map[string]int{nn.Tokens: 8}, Build: func(b *nn.Builder, p *graph.Program) {
		p.Result("loss", m.Build(b).Loss(b, model.NextToken))
	}}
	for _, text := range [][]int32{{1, 2, 3}, {3, 5, 7, 9}} {
		var b data.Batch
		b.Add(text[:len(text)-1], text[1:])
		results, err := h.Compute(ctx, slot, loss, &b, b.Longest())
		if err != nil {
			log.Fatal(err)
		}
		sum, err := results.Get(ctx, "loss")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%.3f\n", sum[0]/float32(b.LossTokens))
	}
	// Output:
	// 5.984
	// 6.674
}
