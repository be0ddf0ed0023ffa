package trainer

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// MultiAdapterTokens is the maximum number of tokens in a pass over the batches of several trainers,
// unless a single one has more. Larger passes do not reduce the cost per token.
const MultiAdapterTokens = 1024

// MultiAdapter returns a trainer whose passes compute batches of several trainers of a host at once. Each
// row uses the adapter whose number in ts is in the input [nn.Adapters], and adds to its
// gradients. If [Apart] has no reason against it, gradients are bit-identical to those of passes
// alone. It takes no steps.
func MultiAdapter(ts ...*Trainer) *Trainer {
	m := &Trainer{host: ts[0].host, specs: ts[0].specs, plan: Plan{Shared: ts[0].plan.Shared}}
	slots := make([]*engine.Slot, len(ts))
	for i, t := range ts {
		slots[i] = t.slot
		if p := t.plan; p.Memory > 0 {
			left := max(1, p.Memory-p.bytes())
			if m.plan.Memory == 0 || left < m.plan.Memory {
				m.plan.Memory = left
			}
		}
	}
	m.slot = m.host.NewMultiAdapter(slots...)
	return m
}

// RowLosses is the result of [MultiAdapterPass]: the loss of each row, as f32.
const RowLosses = "losses"

// MultiAdapterPass returns a pass over next-token batches of several trainers, of at most tokens tokens
// together, with random keys for each row.
func MultiAdapterPass(tokens int) *Pass {
	return &Pass{Name: "train.jobs", Bounds: map[string]int{nn.Tokens: tokens}, RowKeys: true, Emit: func(e *Emitter) {
		losses := e.Out.Head.RowLosses(e.Input(nn.Labels, tensor.I32, e.Axis(nn.Tokens)))
		e.Result(RowLosses, losses)
		e.Backward(losses.Sum(0), e.Trained())
	}}
}

// Fill returns the first of the items and, in order, the others that fit into the same pass: they
// suit the first (all do if suits is nil), and the sizes add up to at most most.
func Fill[T any](items []T, most int, size func(T) int, suits func(first, x T) bool) (taken, left []T) {
	n := 0
	for i, x := range items {
		if size := size(x); i == 0 || n+size <= most && (suits == nil || suits(items[0], x)) {
			taken, n = append(taken, x), n+size
		} else {
			left = append(left, x)
		}
	}
	return taken, left
}

// Apart returns the reason why the gradients of an adapter depend on the other rows of a pass,
// or nothing.
func Apart(h *host.Host, p *lora.Placement) string {
	switch {
	case !h.Info().BatchInvariant:
		return "batch_invariant is not set"
	case h.Model().Quantization().DType.Quantized():
		return "the weights are quantised"
	}
	for _, t := range p.Targets {
		switch {
		case t.Kind != lora.Linear:
			return fmt.Sprintf("%s is no linear layer", t.Name)
		case t.OutputEmbedding:
			return fmt.Sprintf("%s is the head", t.Name)
		case t.Method() != lora.MethodLoRA:
			return t.Method()
		case t.LoraBias:
			return "lora_bias"
		}
	}
	for _, s := range p.Tensors() {
		if s.Role != lora.RoleA && s.Role != lora.RoleB && s.Role != lora.RoleBase {
			return fmt.Sprintf("%s is trained", strings.TrimPrefix(s.Key, "base_model.model."))
		}
	}
	return ""
}
