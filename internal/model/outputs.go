package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrTask reports that the architecture lacks a requested output: logits, a named output, or
// the loss of a task.
var ErrTask = errors.New("the architecture does not have it")

// Task is a training task.
type Task string

// NextToken is the task of language models. The input [nn.Labels] holds the label of each
// token; negative labels are ignored.
const NextToken Task = "next token"

// Loss emits the loss of a task, summed over the predictions. It declares the inputs that it
// reads in addition to the inputs of the model.
type Loss func() graph.Tensor

// Outputs are the results of building a model. Outputs that an architecture does not have are
// absent.
type Outputs struct {
	// Head computes the logits of a language model.
	Head *nn.Head
	// Scores emits the scores of a classifier, [documents, classes]. Repeated calls return the
	// same tensor.
	Scores func() graph.Tensor
	// Hidden are the states before the first layer, after each layer but the
	// last, and after the final norm, as transformers lists them.
	Hidden []graph.Tensor
	// Named are other outputs, such as one vector for each text.
	Named map[string]graph.Tensor
	// Losses maps the tasks that the model can be trained for to their losses.
	Losses map[Task]Loss

	balance func(loss graph.Tensor) graph.Tensor
}

// Balanced adds the model's auxiliary loss to a training loss that is summed over labels: the
// load-balancing loss of routers if config.json asks for it.
func (o Outputs) Balanced(loss graph.Tensor) graph.Tensor {
	if o.balance == nil {
		return loss
	}
	return o.balance(loss)
}

// language adds a language head, with its loss, to the outputs.
func (o *Outputs) language(b *nn.Builder, h nn.Head) {
	o.Head = &h
	o.loss(NextToken, func() graph.Tensor { return h.Loss(b.Input(nn.Labels, tensor.I32, b.Axis(nn.Tokens))) })
}

func (o *Outputs) loss(t Task, l Loss) {
	if o.Losses == nil {
		o.Losses = map[Task]Loss{}
	}
	o.Losses[t] = l
}

// Loss emits the loss of a task. Errors, kept by the graph: ErrTask.
func (o Outputs) Loss(b *nn.Builder, t Task) graph.Tensor {
	if l := o.Losses[t]; l != nil {
		return l()
	}
	return b.G.Fail(fmt.Errorf("%w: a loss for the task %q; it has %s", ErrTask, t, known(o.Losses)))
}

// Logits emits the logits of all tokens [n, vocab] or, if rows is valid, of the tokens with
// the indices rows, i32 [k]. Errors, kept by the graph: ErrTask.
func (o Outputs) Logits(b *nn.Builder, rows graph.Tensor) graph.Tensor {
	switch {
	case o.Head == nil:
		return b.G.Fail(fmt.Errorf("%w: a language head, which logits come from", ErrTask))
	case rows.Valid():
		return o.Head.Rows(rows).Logits()
	}
	return o.Head.Logits()
}

// Score emits the numbers of a classifier, [documents, classes]. Errors, kept by the
// graph: ErrTask.
func (o Outputs) Score(b *nn.Builder) graph.Tensor {
	if o.Scores == nil {
		return b.G.Fail(fmt.Errorf("%w: a head that classifies, which scores come from", ErrTask))
	}
	return o.Scores()
}

// Output returns the named output. Errors, kept by the graph: ErrTask.
func (o Outputs) Output(b *nn.Builder, name string) graph.Tensor {
	if t, ok := o.Named[name]; ok {
		return t
	}
	return b.G.Fail(fmt.Errorf("%w: an output %q; it has %s", ErrTask, name, known(o.Named)))
}

// Last returns the states after the last layer and its norm. Errors: ErrTask.
func (o Outputs) Last() (graph.Tensor, error) {
	if len(o.Hidden) == 0 {
		return graph.Tensor{}, fmt.Errorf("%w: hidden states", ErrTask)
	}
	return o.Hidden[len(o.Hidden)-1], nil
}

// known lists keys.
func known[K ~string, V any](m map[K]V) string {
	if len(m) == 0 {
		return "none"
	}
	var names []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		names = append(names, fmt.Sprintf("%q", string(k)))
	}
	return strings.Join(names, ", ")
}
