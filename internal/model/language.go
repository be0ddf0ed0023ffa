package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// language emits the parts that decoders share around their layers: inputs, embedding, the
// list of hidden states, and the head.
type language struct {
	nn.Text
	config        *Config
	b, body       *nn.Builder // of the checkpoint and of the modules of the decoder
	names         names
	bidirectional bool
	logitCap      float64 // if positive: the soft cap of the logits
	logitScale    float64 // if not 0: the factor of the logits
	hidden        []graph.Tensor
}

// language declares the inputs of a decoder.
func (d *decoder) language(c *Config, b *nn.Builder) *language {
	l := &language{config: c, b: b, body: b, names: d.names(), bidirectional: d.Bidirectional}
	if d.Bidirectional {
		l.Text = b.Document()
	} else {
		l.Text = b.Text()
	}
	if c.Part != Body {
		l.body = b.Sub("%s", l.names.Body)
	}
	if d.within != "" {
		l.body = l.body.Sub("%s", d.within)
	}
	return l
}

// embed returns the input embedding of the tokens.
func (l *language) embed() graph.Tensor {
	c := l.config
	return l.body.Embedding(nn.Vocabulary, l.names.Embedding, l.Tokens, c.VocabSize, c.HiddenSize, c.Padding)
}

// layers applies the layers to x in turn; layer emits number i with its builder.
func (l *language) layers(x graph.Tensor, layer func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor) graph.Tensor {
	for i := range l.config.Layers {
		l.hidden = append(l.hidden, x)
		l.b.Segment()
		x = layer(l.body.Sub("%s.%d", l.names.Layers, i), i, x)
	}
	l.b.EndSegments()
	return x
}

// attention emits attention over the keys of the text. In a bidirectional model the window of
// a applies to both sides.
func (l *language) attention(b *nn.Builder, q, k, v graph.Tensor, a ir.AttentionAttr) graph.Tensor {
	return l.attentionOver(b, q, b.Keep(k, v), a)
}

// attentionOver emits attention over the keys and values of a layer.
func (l *language) attentionOver(b *nn.Builder, q graph.Tensor, kept nn.Kept, a ir.AttentionAttr) graph.Tensor {
	in, a := l.windowed(b, a)
	return b.AttentionOver(in, q, kept, a)
}

// windowed returns the keys that tokens see.
func (l *language) windowed(b *nn.Builder, a ir.AttentionAttr) (nn.Text, ir.AttentionAttr) {
	in := l.Text
	if l.bidirectional && a.Window > 0 {
		in, a.Window = b.Near(in, a.Window), 0
	}
	return in, a
}

// outputs emits the head over x, the output of the final norm: a language head, a classifier
// or none, depending on the part.
func (l *language) outputs(x graph.Tensor) Outputs {
	c, out := l.config, Outputs{Hidden: append(l.hidden, x)}
	switch c.Part {
	case Body:
		return out
	case Classifier:
		c.classify(l.b, x, &out)
		return out
	}
	tied := ""
	if c.TiedEmbeddings {
		tied = l.body.Name(l.names.Embedding)
	}
	h := l.b.Head("lm_head", x, c.VocabSize, tied).SoftCapped(l.logitCap).Scaled(l.logitScale)
	if l.bidirectional { // a token sees the next one, so there is no next-token loss
		out.Head = &h
		return out
	}
	out.language(l.b, h)
	return out
}
