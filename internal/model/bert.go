package model

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	// BERT (Devlin et al. 2018, arXiv 1810.04805): the body, whatever head a
	// checkpoint has on top.
	for _, head := range []string{"Model", "ForMaskedLM", "ForPreTraining", "ForNextSentencePrediction", "ForSequenceClassification"} {
		Register("Bert"+head, Architecture{ModelType: "bert", Read: readBert})
	}
}

// Pooler is an encoder's output for the whole text, [tokens, size]: the state of the text's
// first token. Checkpoints without a pooler do not have it.
const Pooler = "pooler"

// Encoder is the body of BERT and related models: word, position and type embeddings, followed
// by alternating attention and feed-forward blocks with a norm after each. Attention is
// bidirectional. Each architecture sets the fields from its config.json, and may replace
// attention with a function of its own. It is a [Family].
type Encoder struct {
	Intermediate  int
	Heads         int
	Types         int // rows of the embedding of token types; 0: there is none
	Positions     int // rows of the embedding of positions; 0: there is none
	FirstPosition int // the row of a text's first token; earlier rows are for padding
	NormEps       float32
	Activation    ir.Activation

	// Settings are further settings of the architecture.
	Settings any `json:",omitempty"`
	// Prefix begins the names of weights in checkpoints that have a head.
	Prefix string
	// Prefixes are other ones, which some files have.
	Prefixes []string `json:"-"`
	// StoredNames replaces parts of names by those that files have. Nil means that they have the
	// names of the model.
	StoredNames *strings.Replacer `json:"-"`
	// StoredLayers is the name of the list of layers in files that have Fused layers.
	StoredLayers string       `json:"-"`
	Fused        []fusedLayer `json:"-"`
	// Head returns the layers of a classification head. Nil means the layers of RoBERTa.
	Head func(c *Config) []headLayer `json:"-"`
	// HeadPools reports that the pooler of a checkpoint belongs to its head.
	HeadPools bool `json:"-"`
	// States emits the hidden states of the body, whose builder is b. Nil means the states of BERT.
	States func(c *Config, b *nn.Builder, in nn.Text) []graph.Tensor `json:"-"`
	// Pool emits the input of the classification head from the last states x. Nil means x.
	Pool func(b *nn.Builder, in nn.Text, x graph.Tensor) graph.Tensor `json:"-"`
	// OtherHeads match the tensors of heads for other tasks, in addition to common ones.
	OtherHeads *regexp.Regexp `json:"-"`
	// Attention emits the first half of a layer. b is the builder of attention, and look
	// computes attention from queries, keys and values. Nil means the attention of BERT.
	Attention func(c *Config, b *nn.Builder, x graph.Tensor, look look) graph.Tensor `json:"-"`
	// Bias, if not nil, is added to the scores of all layers: see ir.RelativeBias. b
	// is the builder of all layers.
	Bias func(c *Config, b *nn.Builder) graph.Tensor `json:"-"`
}

// look computes attention from queries, keys and values.
type look func(q, k, v graph.Tensor) graph.Tensor

func readBert(c *Config, f *Fields) Family {
	e := f.encoder(c, "bert.")
	e.Types = f.Int("type_vocab_size", 2)
	e.Head = func(c *Config) []headLayer {
		return []headLayer{c.headLinear(e.Prefix+"pooler.dense", c.HiddenSize).then(ir.Tanh), c.headLinear("classifier", len(c.Classes.Names))}
	}
	if t := f.String("position_embedding_type", "absolute"); t != "absolute" {
		f.Unsupported("position_embedding_type", t, []string{"absolute"})
	}
	return e
}

// encoder reads the keys that encoders share.
func (f *Fields) encoder(c *Config, prefix string) *Encoder {
	c.MaxPositions = f.Int("max_position_embeddings", 512)
	if _, given := f.values["pad_token_id"]; !given && c.VocabSize > 0 {
		c.Padding = 0
	}
	e := &Encoder{
		Intermediate: f.Need("intermediate_size"),
		Heads:        f.Need("num_attention_heads"),
		Positions:    c.MaxPositions,
		NormEps:      float32(f.Float("layer_norm_eps", 1e-12)),
		Activation:   f.activation("hidden_act", "gelu"),
		Prefix:       prefix,
	}
	for _, key := range []string{"is_decoder", "add_cross_attention"} {
		if f.Bool(key, false) {
			f.Unsupported(key, "true", []string{"false"})
		}
	}
	return e
}

// from starts positions after the padding row and shortens the maximum length of texts
// accordingly.
func (e *Encoder) from(c *Config, padding int) {
	e.FirstPosition = padding + 1
	c.MaxPositions -= e.FirstPosition
}

// Check implements Family.
func (e *Encoder) Check(c *Config) error {
	if err := CheckSizes(Size{"intermediate_size", e.Intermediate}, Size{"num_attention_heads", e.Heads}); err != nil {
		return err
	}
	switch {
	case e.Types < 0 || e.Types > 1<<30:
		return fmt.Errorf("%w: type_vocab_size: found %d, expected 1 or more", ErrConfig, e.Types)
	case c.HiddenSize%e.Heads != 0:
		return fmt.Errorf("%w: hidden_size %d is not a multiple of num_attention_heads %d", ErrConfig, c.HiddenSize, e.Heads)
	case !(e.NormEps > 0):
		return fmt.Errorf("%w: layer_norm_eps: found %v, expected more than 0", ErrConfig, e.NormEps)
	}
	return nil
}

// OtherNames implements [Renamer]. With a head, weights have the prefix of the body; in the
// oldest files, norms have gamma and beta.
func (e *Encoder) OtherNames(name string) []string {
	var names []string
	add := func(name string) {
		names = append(names, name, e.Prefix+name)
		for _, p := range e.Prefixes {
			names = append(names, p+name)
		}
	}
	name = strings.TrimPrefix(name, e.Prefix)
	add(name)
	if e.StoredNames != nil {
		add(e.StoredNames.Replace(name))
	}
	for _, old := range [...][2]string{{"weight", "gamma"}, {"bias", "beta"}} {
		if s, ok := strings.CutSuffix(name, ".LayerNorm."+old[0]); ok {
			add(s + ".LayerNorm." + old[1])
		}
	}
	return names
}

// Skips implements [Skipper].
func (e *Encoder) Skips(*Config) []Skip {
	if e.OtherHeads == nil {
		return nil
	}
	return []Skip{{Names: e.OtherHeads, Why: otherHead}}
}

// Build implements Family.
func (e *Encoder) Build(c *Config, b *nn.Builder) Outputs {
	in, m := b.Document(), b
	if c.Part == Classifier {
		m = b.Sub("%s", strings.TrimSuffix(e.Prefix, "."))
	}
	states := e.States
	if states == nil {
		states = e.states
	}
	out := Outputs{Hidden: states(c, m, in)}
	x := out.Hidden[c.Layers]
	if c.Part == Classifier {
		if e.Pool != nil {
			x = e.Pool(b, in, x)
		}
		c.classify(b, x, &out)
		return out
	}
	if !e.HeadPools && b.Has("pooler.dense.weight") {
		if y := b.Linear("pooler.dense", x, c.HiddenSize, true); y.Valid() {
			out.Named = map[string]graph.Tensor{Pooler: y.Apply(ir.Tanh)}
		}
	}
	return out
}

// states emits the hidden states of BERT.
func (e *Encoder) states(c *Config, b *nn.Builder, in nn.Text) []graph.Tensor {
	x := e.embed(c, b.Sub("embeddings"), in)
	layers := b.Sub("encoder")
	a, bias := e.heads(c), []graph.Tensor(nil)
	if e.Bias != nil {
		a.Bias, bias = ir.RelativeBias, append(bias, e.Bias(c, layers))
	}
	look := func(q, k, v graph.Tensor) graph.Tensor { return b.Attention(in, q, k, v, a, bias...) }
	return e.layers(c, layers, "layer", x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor { return e.layer(c, b, x, look) })
}

// layers applies the layers of b to x in turn, and returns all states. name is the name of the
// list of layers; layer emits number i with its builder.
func (e *Encoder) layers(c *Config, b *nn.Builder, name string, x graph.Tensor, layer func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor) []graph.Tensor {
	var all []graph.Tensor
	for i := range c.Layers {
		all = append(all, x)
		b.Segment()
		x = layer(b.Sub("%s.%d", name, i), i, x)
	}
	b.EndSegments()
	return append(all, x)
}

func (e *Encoder) embed(c *Config, b *nn.Builder, in nn.Text) graph.Tensor {
	x := b.Embedding(nn.Vocabulary, "word_embeddings", in.Tokens, c.VocabSize, c.HiddenSize, c.Padding)
	if e.Types > 0 {
		types := b.G.Of(b.G.IR().Const(0, ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(1)})) // all tokens are of the first
		if c.Part == Classifier && c.TokenTypes() > 0 {
			types = b.Input(nn.Types, tensor.I32, in.Tokens.Type().Shape[0])
		}
		x = x.Add(b.Embedding(nn.Attributes, "token_type_embeddings", types, e.Types, c.HiddenSize, -1))
	}
	if e.Positions > 0 {
		at, padding := in.Positions, e.FirstPosition-1
		if padding >= 0 {
			at = b.Places(padding)
		}
		x = x.Add(b.Embedding(nn.Attributes, "position_embeddings", at, e.Positions, c.HiddenSize, padding))
	}
	return b.LayerNorm("LayerNorm", x, e.NormEps)
}

func (e *Encoder) layer(c *Config, b *nn.Builder, x graph.Tensor, look look) graph.Tensor {
	attention := e.Attention
	if attention == nil {
		attention = e.attention
	}
	return e.feedForward(c, b, attention(c, b.Sub("attention"), x, look))
}

// feedForward emits the second half of a layer.
func (e *Encoder) feedForward(c *Config, b *nn.Builder, x graph.Tensor) graph.Tensor {
	h := b.Linear("intermediate.dense", x, e.Intermediate, true)
	if h.Valid() {
		h = h.Activate(e.Activation)
	}
	return e.join(b.Sub("output"), h, x, c.HiddenSize)
}

// join projects h to the size of x, adds x and normalizes the sum.
func (e *Encoder) join(b *nn.Builder, h, x graph.Tensor, out int) graph.Tensor {
	h = b.Linear("dense", h, out, true)
	if !h.Valid() {
		return h
	}
	return b.LayerNorm("LayerNorm", h.Add(x), e.NormEps)
}

func (e *Encoder) attention(c *Config, b *nn.Builder, x graph.Tensor, look look) graph.Tensor {
	self := b.Sub("self")
	q := self.Linear("query", x, c.HiddenSize, true)
	k := self.Linear("key", x, c.HiddenSize, true)
	v := self.Linear("value", x, c.HiddenSize, true)
	return e.join(b.Sub("output"), look(q, k, v), x, c.HiddenSize)
}

// heads returns the attributes of attention.
func (e *Encoder) heads(c *Config) ir.AttentionAttr {
	d := c.HiddenSize / e.Heads
	return ir.AttentionAttr{Heads: e.Heads, KVHeads: e.Heads, HeadDim: d, Scale: float32(1 / math.Sqrt(float64(d)))}
}
