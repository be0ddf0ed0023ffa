package decode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/peer"
	"github.com/lorafuse/lorafuse/internal/quant"
)

// Names of the measured programs.
const (
	ours         = "lorafuse"
	memory       = "memory"
	llamaCpp     = "llama.cpp"
	transformers = "transformers"
)

// Groups of rows.
const (
	tokenGroup   = "One token"
	contextGroup = "One token, by the length of the text before it"
	promptGroup  = "Reading a prompt"
)

// Ways to generate that are measured.
var (
	merged  = engineKind{}
	adapted = engineKind{adapter: true}
	rounded = engineKind{precision: backend.BF16}

	int8Weights = engineKind{weights: quant.Int8}
	nf4Weights  = engineKind{weights: quant.Bit4}
)

func (s *suite) row(group, program, name string) *bench.Row {
	return &bench.Row{Group: group, Program: program, Name: name, Input: s.shape.String()}
}

func (s *suite) owns(r *bench.Row) bool { return strings.HasPrefix(r.Input, s.shape.String()) }

// tasks returns all tasks for the model.
func (s *suite) tasks() []bench.Task {
	return append(append(s.token(), s.prompts()...), s.contexts()...)
}

// token returns tasks for one token after the shortest context, for all programs.
func (s *suite) token() []bench.Task {
	add := func(program, name string) *bench.Row {
		r := s.row(tokenGroup, program, name)
		r.Input += fmt.Sprintf(", behind %d tokens", s.Contexts[0])
		r.Tokens, r.Bytes = 1, s.tokenBytes(s.Contexts[0])
		return r
	}
	one, other, read := add(ours, merged.name(s.Rank)), add(ours, adapted.name(s.Rank)), add(memory, "reading the weights alone")
	read.Tokens, read.Bytes = 0, int64(2*s.shape.LinearParams())
	other.Bytes += int64(4 * s.shape.LoRAParams(s.Rank))
	tasks := []bench.Task{s.decoding(one, merged, s.Contexts[0]), s.decoding(other, adapted, s.Contexts[0]), {Row: read, Begin: s.readLoop}}
	s.machine.Hold(read, backend.F32)
	if s.machine.OnGPU() {
		tasks[0].Marks = []bench.Mark{{Name: bench.TargetDecode, Row: one.ID(), BytePeak: bench.LeastDecode}}
	}
	for _, k := range []engineKind{int8Weights, nf4Weights} {
		r := add(ours, k.name(s.Rank))
		r.Bytes -= s.savedBytes(k.weights)
		tasks = append(tasks, s.decoding(r, k, s.Contexts[0]))
	}
	if s.LlamaPython != "" {
		for _, f := range []checkpoint.Format{checkpoint.BF16, checkpoint.Q8} {
			r := add(llamaCpp, f.String())
			r.Bytes = 0 // its own business
			tasks = append(tasks, s.peerTask(r, &s.llama, func() (map[string]any, error) { return s.ggufTask("decode", f) }))
		}
	}
	if s.Python != "" {
		for _, rank := range []int{0, s.Rank} {
			name := "merged, bf16"
			if rank > 0 {
				name = fmt.Sprintf("adapter r=%d, not merged, bf16", rank)
			}
			r := add(transformers, name)
			r.Bytes = 0
			tasks = append(tasks, s.peerTask(r, &s.torch, func() (map[string]any, error) {
				return map[string]any{"op": "decode", "model": s.dir, "dtype": "bf16", "rank": rank, "context": s.Contexts[0], "tokens": s.Tokens}, nil
			}))
		}
	}
	return tasks
}

// contexts lists a token behind texts of all lengths.
func (s *suite) contexts() (tasks []bench.Task) {
	for _, n := range s.Contexts {
		for _, k := range []engineKind{merged, adapted} {
			r := s.row(contextGroup, ours, k.name(s.Rank))
			r.Input += fmt.Sprintf(", behind %d tokens", n)
			r.Tokens, r.Bytes = 1, s.tokenBytes(n)
			if k.adapter {
				r.Bytes += int64(4 * s.shape.LoRAParams(s.Rank))
			}
			tasks = append(tasks, s.decoding(r, k, n))
		}
	}
	return tasks
}

// tokenBytes returns the minimum number of bytes read per token: the weights of linear layers, as bf16, and the keys
// and values of the context, averaged over a sample.
func (s *suite) tokenBytes(context int) int64 {
	cache := 2 * 4 * s.shape.Layers * s.shape.KVHeads * s.shape.HeadDim() * (context + s.Tokens/2)
	return int64(2*s.shape.LinearParams() + cache)
}

// savedBytes returns the bytes that quantization of the linear layers saves over bf16. The head is not quantized.
func (s *suite) savedBytes(method quant.Method) int64 {
	n := s.shape.LinearParams() - s.shape.Vocab*s.shape.Hidden
	return int64(2*n - method.DType().Bytes(n))
}

// decoding returns the task of one token with lorafuse.
func (s *suite) decoding(r *bench.Row, k engineKind, before int) bench.Task {
	s.machine.Hold(r, k.precision)
	return bench.Task{Row: r, Begin: func(ctx context.Context) (bench.Sampler, error) {
		e, err := s.engine(ctx, k)
		if err != nil {
			return nil, err
		}
		return &behind{e, s.prompt(before), s.Tokens}, nil
	}}
}

// prompts lists reading a prompt, for all programs.
func (s *suite) prompts() (tasks []bench.Task) {
	add := func(program, name string) *bench.Row {
		r := s.row(promptGroup, program, name)
		r.Input += fmt.Sprintf(", %d tokens", s.Prompt)
		r.Tokens, r.Flops = float64(s.Prompt), s.promptFlops()
		return r
	}
	for _, k := range []engineKind{merged, rounded, adapted} {
		r := add(ours, k.name(s.Rank))
		s.machine.Hold(r, k.precision)
		tasks = append(tasks, bench.Task{Row: r, Begin: func(ctx context.Context) (bench.Sampler, error) {
			e, err := s.engine(ctx, k)
			if err != nil {
				return nil, err
			}
			return &reading{e, s.prompt(s.Prompt)}, nil
		}})
	}
	if s.LlamaPython != "" {
		r := add(llamaCpp, checkpoint.BF16.String())
		tasks = append(tasks, s.peerTask(r, &s.llama, func() (map[string]any, error) { return s.ggufTask("prefill", checkpoint.BF16) }))
	}
	if s.Python != "" {
		r := add(transformers, "merged, bf16")
		tasks = append(tasks, s.peerTask(r, &s.torch, func() (map[string]any, error) {
			return map[string]any{"op": "prefill", "model": s.dir, "dtype": "bf16", "rank": 0, "context": 0, "tokens": s.Prompt}, nil
		}))
	}
	return tasks
}

// promptFlops returns the floating-point operations of prefill. The head processes the last token only.
func (s *suite) promptFlops() float64 {
	head, pairs := s.shape.Vocab*s.shape.Hidden, s.Prompt*(s.Prompt+1)/2
	return 2*float64(s.shape.LinearParams()-head)*float64(s.Prompt) + 2*float64(head) + 4*float64(pairs)*float64(s.shape.Hidden)*float64(s.shape.Layers)
}

// peerTask returns a task of another program. The peer must exist when the task begins.
func (s *suite) peerTask(r *bench.Row, p **peer.Peer, what func() (map[string]any, error)) bench.Task {
	return bench.Task{Row: r, Foreign: true, Begin: func(ctx context.Context) (bench.Sampler, error) {
		w, err := what()
		if err != nil {
			return nil, err
		}
		return (*p).Begin(ctx, w)
	}}
}

// ggufTask returns a request to llama.cpp, with the model in its own format.
func (s *suite) ggufTask(op string, f checkpoint.Format) (map[string]any, error) {
	path := filepath.Join(s.dir, f.String()+".gguf")
	if _, err := os.Stat(path); err != nil {
		if err := s.shape.WriteGGUF(path, f); err != nil {
			return nil, err
		}
	}
	r := map[string]any{"op": op, "gguf": path, "positions": max(s.Prompt, s.Contexts[0]+s.Tokens) + 1, "context": s.Contexts[0], "tokens": s.Tokens}
	if op == "prefill" {
		r["tokens"] = s.Prompt
	}
	return r, nil
}
