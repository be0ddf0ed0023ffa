package batching

import (
	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Inputs and results of the programs, by rows: the tokens whose logits are computed.
const (
	readInput        = "read"        // i32 [read]: indices of the tokens
	temperatureInput = "temperature" // f32 [read], if there are candidates
	logitsResult     = "logits"      // f32 [read, vocab]
	candidatesResult = "candidates"  // f32 [read, 2n+1]: n logits, n ids and sample.Candidates.LogMass
)

// mostCandidates is the number of most likely tokens that a device selects for each row. Usual top-k and top-p keep
// fewer.
const mostCandidates = 64

// Candidates returns the number of most likely tokens that programs of a device select for each row. It is zero if the
// host computes the logits itself, the device has no kernel for the selection, or float32 cannot hold the ids.
func Candidates(info backend.Info, supports func(op ir.Op, attr any, in []ir.Type) bool, vocab int) int {
	n := min(mostCandidates, vocab)
	row := ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(1, vocab)}
	if !info.GPU || vocab > 1<<24 || !supports(ir.TopK, ir.TopKAttr{K: n}, []ir.Type{row}) {
		return 0
	}
	return n
}

// Build returns the function that builds the program of a step. It computes logits, and selects the given number of
// candidates if that is not zero.
func Build(m *model.Model, candidates int) func(b *nn.Builder, p *graph.Program) {
	return func(b *nn.Builder, p *graph.Program) {
		rows := b.Axis(readInput)
		logits := m.Build(b).Logits(b, b.Input(readInput, tensor.I32, rows))
		p.Result(logitsResult, logits)
		if candidates == 0 {
			return
		}
		values, ids := logits.TopK(candidates)
		scores := logits.Div(b.Input(temperatureInput, tensor.F32, rows).Reshape(rows, ir.Static(1)))
		mass := scores.CrossEntropyByRow(ids.Slice(1, 0, 1).Reshape(rows)) // of the most likely token
		p.Result(candidatesResult, graph.Concat(1, values, ids.Cast(tensor.F32), mass.Reshape(rows, ir.Static(1))))
	}
}

// results holds the results of a step on the host, by rows.
type results struct {
	vocab, n     int       // n candidates of a row
	temperatures []float32 // that the step was given
	logits       []float32
	candidates   []float32
	ids          []int32 // of the candidates
}

func newResults(rows, vocab, candidates int) results {
	return results{vocab: vocab, n: candidates, logits: make([]float32, rows*vocab), candidates: make([]float32, rows*(2*candidates+1)), ids: make([]int32, rows*candidates)}
}

// parts returns the parts of results to read: the candidates of the first rows, and the logits of the listed rows, which
// ascend.
func (x *results) parts(rows int, logits []int) (parts []engine.Part) {
	if x.n > 0 && rows > 0 {
		parts = append(parts, engine.Part{Result: candidatesResult, Into: x.candidates[:rows*(2*x.n+1)]})
	}
	for i := 0; i < len(logits); {
		first, end := logits[i], logits[i]
		for ; i < len(logits) && logits[i] <= end; i++ { // adjacent rows are one copy
			end = logits[i] + 1
		}
		parts = append(parts, engine.Part{Result: logitsResult, Start: first * x.vocab, Into: x.logits[first*x.vocab : end*x.vocab]})
	}
	return parts
}

// convert sets the ids of the candidates of the first rows.
func (x *results) convert(rows int) {
	for i := range rows {
		for j, id := range x.candidates[i*(2*x.n+1)+x.n:][:x.n] {
			x.ids[i*x.n+j] = int32(id)
		}
	}
}

// row returns the logits of a row, which must have been read.
func (x *results) row(i int) []float32 { return x.logits[i*x.vocab:][:x.vocab] }

// top returns the candidates of a row.
func (x *results) top(i int) sample.Candidates {
	row := x.candidates[i*(2*x.n+1):][:2*x.n+1]
	return sample.Candidates{IDs: x.ids[i*x.n:][:x.n], Logits: row[:x.n], Vocab: x.vocab, LogMass: row[2*x.n], Temperature: x.temperatures[i]}
}
