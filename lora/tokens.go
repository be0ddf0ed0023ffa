package lora

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// TokenPlacement is an embedding with trained rows.
type TokenPlacement struct {
	Module
	Tokens []int    // row numbers, in the order of the saved rows
	Tied   []Module // modules that share the weight and follow its rows
}

// key returns the key of the rows in an adapter file.
func (t TokenPlacement) key() string {
	return keyPrefix + t.inFiles() + ".token_adapter.trainable_tokens_delta"
}

// tokens fills Tokens.
func (p *placer) tokens() error {
	const key = "trainable_token_indices"
	for _, rows := range p.config.TrainableTokenIndices {
		name := rows.Module
		if name == "" {
			i := slices.IndexFunc(p.model.Modules, func(m Module) bool { return m.InputEmbedding })
			name = "embed_tokens" // PEFT's guess if the model does not specify it
			if i >= 0 {
				name = p.model.Modules[i].Name
			}
		}
		found := false
		for _, m := range p.model.Modules {
			if !strings.HasSuffix(m.Name, name) {
				continue
			}
			found = true
			if err := p.addTokens(m, rows.Tokens); err != nil {
				return err
			}
		}
		if !found {
			p.unused(key, name)
			u := p.Unused[len(p.Unused)-1]
			return fmt.Errorf("lora: %w: %s: %q is not in the model%s", ErrNoTarget, key, name, u.Why)
		}
	}
	return p.tieTokens()
}

func (p *placer) addTokens(m Module, tokens []int) error {
	const key = "trainable_token_indices"
	count := m.In
	switch m.Kind {
	case Embedding:
	case Linear: // a head: its rows are tokens
		count = m.Out
		if m.Bias {
			return unsupported(key, "%q has a bias, which PEFT leaves out", m.Name)
		}
	default:
		return unsupported(key, "%s; embeddings and heads have tokens", describeModule(m.Name, m.Kind))
	}
	if _, ok := p.Target(m.Name); ok {
		return configError(key, "%q is in target_modules too, it can be one or the other", m.Name)
	}
	if p.isSaved(m.Name) {
		return configError(key, "%q is in modules_to_save too, which trains all of it", m.Name)
	}
	if slices.ContainsFunc(p.Tokens, func(t TokenPlacement) bool { return t.Name == m.Name }) {
		return configError(key, "%q is named twice", m.Name)
	}
	for _, t := range tokens {
		if t >= count {
			return configError(key, "token %d is outside of %q, which has %d", t, m.Name, count)
		}
	}
	p.Placement.Tokens = append(p.Placement.Tokens, TokenPlacement{Module: m, Tokens: slices.Clone(tokens)})
	return nil
}

// tieTokens makes a head that shares the weight of an embedding follow the embedding's
// trained rows. If both are listed with the same rows, one set of rows is trained.
func (p *placer) tieTokens() error {
	follows := map[string]bool{}
	for i := range p.Tokens {
		embedding := &p.Tokens[i]
		for _, m := range p.model.Modules {
			if m.TiedTo != embedding.Name {
				continue
			}
			j := slices.IndexFunc(p.Tokens, func(t TokenPlacement) bool { return t.Name == m.Name })
			switch {
			case j < 0:
				embedding.Tied = append(embedding.Tied, m)
			case slices.Equal(p.Tokens[j].Tokens, embedding.Tokens):
				embedding.Tied = append(embedding.Tied, m)
				follows[m.Name] = true
			case p.config.EnsureWeightTying:
				return configError("ensure_weight_tying", "%q and %q share a weight, but trainable_token_indices gives them different tokens", embedding.Name, m.Name)
			}
		}
	}
	p.Placement.Tokens = slices.DeleteFunc(p.Tokens, func(t TokenPlacement) bool { return follows[t.Name] })
	return nil
}

func (s *State) startTokens(x TensorSpec) error {
	for _, t := range s.Placement.Tokens {
		if t.Name != x.Module {
			continue
		}
		weight, err := BaseWeight(t.Module, s.weights, nil)
		if err != nil {
			return err
		}
		n := t.columns()
		rows := make([]float32, 0, n*len(t.Tokens))
		for _, id := range t.Tokens {
			rows = append(rows, weight[id*n:id*n+n]...)
		}
		s.Values[x.Key] = rows
	}
	return nil
}

// tokenRows emits a lookup of the rows ids of w; rows of trained tokens come from the
// adapter.
func (j *Injection) tokenRows(b *nn.Builder, m nn.Module, t TokenPlacement, ids, w graph.Tensor) graph.Tensor {
	n, k := ids.Type().Shape[0], len(t.Tokens)
	rows, index := j.tokenParams(b, t)
	hit := ids.Reshape(n, ir.Static(1)).Compare(ir.Equal, index.Reshape(ir.Static(1), ir.Static(k)))
	choice := hit.Where(b.G.Const(1, n, ir.Static(k)), b.G.Const(0, n, ir.Static(k)))
	some := choice.Sum(1).Reshape(n, ir.Static(1)).Compare(ir.Greater, b.G.Const(0, n, ir.Static(1)))
	return some.Where(b.WithoutPadding(m, ids, choice.MatMul(rows)), w.Gather(ids))
}

// tokenFactors returns the factors of a head W' with trained token rows: x W'ᵀ = x Wᵀ +
// x (rows − W[tokens])ᵀ in the columns of the tokens, a product of rank len(tokens).
func (j *Injection) tokenFactors(b *nn.Builder, m nn.Module, t TokenPlacement, w graph.Tensor) (down, up graph.Tensor) {
	rows, index := j.tokenParams(b, t)
	k, v := ir.Static(len(t.Tokens)), ir.Static(m.Out)
	hit := b.G.Of(b.G.IR().Iota(0, ir.Shape{v, ir.Static(1)})).Compare(ir.Equal, index.Reshape(ir.Static(1), k))
	down, up = rows.Sub(w.Gather(index)), hit.Where(b.G.Const(1, v, k), b.G.Const(0, v, k))
	if !b.Training() {
		down, up = b.Precompute("tokens."+m.Name+".down", down.Detach()), b.Precompute("tokens."+m.Name+".up", up.Detach())
	}
	return down, up
}

// tokenParams returns the trained rows [k, columns] and their token IDs i32 [k].
func (j *Injection) tokenParams(b *nn.Builder, t TokenPlacement) (rows, index graph.Tensor) {
	rows = b.Train(t.key(), len(t.Tokens), t.columns())
	return rows, b.Constant(tokensPrefix+t.Name, t.numbers())
}

// numbers returns the token IDs, i32 [k].
func (t TokenPlacement) numbers() *tensor.Tensor {
	ids := make([]byte, 0, 4*len(t.Tokens))
	for _, id := range t.Tokens {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(id))
	}
	return &tensor.Tensor{DType: tensor.I32, Shape: []int{len(t.Tokens)}, Data: ids}
}

// MergeTokens copies the trained rows into weight, which has the rows of an embedding
// or a head. rows has one row for each of t.Tokens.
func (t TokenPlacement) MergeTokens(weight, rows []float32) error {
	n := t.columns()
	if len(weight) != t.In*t.Out || len(rows) != n*len(t.Tokens) {
		return fmt.Errorf("lora: merge the tokens of %q: %d elements into %d, expected %d into %d: %w",
			t.Name, len(rows), len(weight), n*len(t.Tokens), t.In*t.Out, ErrShape)
	}
	for i, token := range t.Tokens {
		copy(weight[token*n:(token+1)*n], rows[i*n:(i+1)*n])
	}
	return nil
}

// addTokens registers the merge of trained rows.
func (m *Merger) addTokens() {
	for _, t := range m.placement.Tokens {
		for _, module := range append([]Module{t.Module}, t.Tied...) {
			m.add(module.Name+".weight", func(w []float32, _ tensor.DType) error {
				rows, err := m.adapter.Float32s(t.key())
				if err != nil {
					return err
				}
				return t.MergeTokens(w, rows)
			})
		}
	}
}
