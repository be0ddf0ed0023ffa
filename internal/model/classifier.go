package model

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Classification is the task of classifiers. The input [nn.Classes] holds the class of each
// document, or [nn.Values] its numbers, depending on [Classes].
const Classification Task = "classification"

// OpenClassifier opens a checkpoint as a classifier, like transformers'
// AutoModelForSequenceClassification. If the checkpoint has no classification head, the head
// is initialized as in transformers: normal weights with standard deviation initializer_range,
// or another one if the architecture has its own, norms of ones, and zero biases. The random
// numbers depend only on seed and the names of the tensors; see [Model.Fresh]. In addition to the errors of Open, it returns ErrUnsupported if the
// architecture has no classifiers, and nn.ErrShape if the head of the checkpoint has another
// number of classes.
func OpenClassifier(dir string, classes Classes, seed uint64) (*Model, error) {
	return open(dir, func(m *Model) error {
		c := m.Config
		if c.ClassifierArchitecture() == "" {
			return fmt.Errorf("%w: architecture %q has no classifiers", ErrUnsupported, c.Architecture)
		}
		if err := classes.Check(); err != nil {
			return err
		}
		c.Part, c.Classes = Classifier, classes
		head := c.head()
		last := head[len(head)-1]
		if v, err := m.view(m.inFile(last.Name + ".weight")); err == nil && len(v.Shape) == 2 && v.Shape[0] != last.Out {
			return fmt.Errorf("%w: the head of the checkpoint (%s) has %d classes, expected %d", nn.ErrShape, last.Name, v.Shape[0], last.Out)
		}
		return m.initialize(head, seed)
	})
}

// headLayer is a layer of a classification head, with the function that follows it.
type headLayer struct {
	nn.Module
	Eps       float32                         // of a norm
	Then      func(graph.Tensor) graph.Tensor // an activation; nil: none
	Deviation float64                         // of new weights; 0: that of the model
}

// headLinear returns a linear layer of a head, with a bias, over states of the model.
func (c *Config) headLinear(name string, out int) headLayer {
	return headLayer{Module: nn.Module{Name: name, Kind: nn.KindLinear, In: c.HiddenSize, Out: out, Bias: true}}
}

// then adds an activation.
func (l headLayer) then(fn ir.UnaryFn) headLayer {
	l.Then = func(x graph.Tensor) graph.Tensor { return x.Apply(fn) }
	return l
}

// head returns the layers of a classification head, applied to the pooled state of a document.
func (c *Config) head() []headLayer {
	n := len(c.Classes.Names)
	switch e, encoder := c.Family.(*Encoder); {
	case !encoder:
		return []headLayer{{Module: nn.Module{Name: "score", Kind: nn.KindLinear, In: c.HiddenSize, Out: n}}}
	case e.Head != nil:
		return e.Head(c)
	}
	return []headLayer{c.headLinear("classifier.dense", c.HiddenSize).then(ir.Tanh), c.headLinear("classifier.out_proj", n)}
}

// ofHead reports whether a module is part of the head of a classifier.
func (c *Config) ofHead(m nn.Module) bool {
	return c.Part == Classifier && slices.ContainsFunc(c.head(), func(h headLayer) bool { return h.Name == m.Name })
}

// classify adds a classification head over the states x [tokens, d], with its loss, to the
// outputs.
func (c *Config) classify(b *nn.Builder, x graph.Tensor, out *Outputs) {
	out.Scores = sync.OnceValue(func() graph.Tensor {
		if x.Valid() {
			read := b.Input(nn.ReadToken, tensor.I32, b.Axis(nn.Documents))
			x, b = x.Gather(read), b.IndexSelect(read)
		}
		for _, l := range c.head() {
			if l.Kind == nn.KindNorm {
				x = layerNorm(b, l.Name, x, l.Eps, l.Bias)
			} else {
				x = b.Linear(l.Name, x, l.Out, l.Bias)
			}
			if l.Then != nil && x.Valid() {
				x = l.Then(x)
			}
		}
		return x
	})
	out.loss(Classification, func() graph.Tensor { return c.Classes.loss(b, out.Scores()) })
}

// ClassifierArchitecture returns the classifier architecture of the model's type, or the empty
// string.
func (c *Config) ClassifierArchitecture() string { return ClassifierOf(c.ModelType) }

// MarkRead adds to a batch at which token each of its documents is read: encoders read
// the first, decoders the last that is no padding.
func (c *Config) MarkRead(b *data.Batch) {
	_, encoder := c.Family.(*Encoder)
	at, tokens := make([]int32, b.Rows()), b.Tokens()
	for i := range at {
		first := b.Starts[i]
		if at[i] = first; encoder {
			continue
		}
		last := b.Starts[i+1] - 1
		if c.Padding >= 0 {
			for last > first && int(tokens[last]) == c.Padding {
				last--
			}
		}
		at[i] = last
	}
	b.SetInts(nn.ReadToken, at)
}

// TokenTypes returns the number of token types of a document, or 0 if the model ignores them.
func (c *Config) TokenTypes() int {
	if e, ok := c.Family.(*Encoder); ok && e.Types > 1 {
		return e.Types
	}
	return 0
}

// readClasses reads the classes of config.json. If the model has no classification head, only
// names other than the default ones are used.
func (c *Config) readClasses(f *Fields) {
	const deviation = 0.02 // the default of transformers, also used for 0
	switch c.Deviation = f.Float("initializer_range", deviation); {
	case c.Deviation == 0:
		c.Deviation = deviation
	case c.Deviation < 0:
		f.Fail("initializer_range", c.Deviation, "0 or more")
	}
	if c.Part == Classifier {
		c.Classes = f.classes()
		return
	}
	if !f.Has("id2label") {
		return
	}
	alone := &Fields{values: f.values}
	if classes := alone.classes(); alone.err == nil && !classes.Unnamed() {
		c.Classes = classes
	}
}

// loss returns the loss of scores [documents, classes], summed over documents: the
// cross-entropy of the classes, or the mean over a document's numbers of binary
// cross-entropies log(1+eˣ) − x·z or of squared errors.
func (c Classes) loss(b *nn.Builder, x graph.Tensor) graph.Tensor {
	if !x.Valid() {
		return x
	}
	documents, n := b.Axis(nn.Documents), len(c.Names)
	if c.Means() == data.SingleLabel {
		return x.CrossEntropy(b.Input(nn.Classes, tensor.I32, documents))
	}
	z := b.Input(nn.Values, tensor.F32, documents, ir.Static(n))
	mean := 1 / float64(n)
	if c.Means() == data.Regression {
		return x.Sub(z).SumSquares().Scale(mean)
	}
	g := b.G.IR()
	positive := b.G.Of(g.Binary(ir.Max, x.Value(), g.Const(0, ir.Type{DType: tensor.F32, Shape: ir.Shape{}})))
	tail := x.Apply(ir.Abs).Scale(-1).Apply(ir.Exp).AddScalar(1).Apply(ir.Log)
	return positive.Add(tail).Sub(x.Mul(z)).Sum(1).Sum(0).Scale(mean)
}
