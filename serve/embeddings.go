package serve

import (
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// maxInputs is the maximum number of inputs of an embeddings request, as in OpenAI's API.
const maxInputs = 2048

// vector is an embedding, encoded as numbers or as base64 of its bytes.
type vector struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

// embeddingsRequest is the body of POST /v1/embeddings.
type embeddingsRequest struct {
	Input      prompts `json:"input"`
	Encoding   string  `json:"encoding_format" one:"float|base64"`
	Dimensions int     `json:"dimensions" in:"1,"`
	User       string  `json:"user"`
	Model      *string `json:"model"`
}

// embed handles POST /v1/embeddings.
func (s *Server) embed(c *web.Call) error {
	var r embeddingsRequest
	if err := c.Decode(&r); err != nil {
		return err
	}
	if err := r.Input.check("input", maxInputs); err != nil {
		return err
	}
	size := r.Dimensions
	t, err := s.target(c, r.Model)
	if err != nil {
		return err
	}
	defer t.release()
	switch {
	case s.options.Embedder == nil:
		return web.Invalid("model", "the model %.200q continues texts and makes no vectors of them", t.name)
	case t.adapter != "":
		return web.Invalid("model", "model: vectors are made by %q alone, without adapters", s.options.Name)
	}
	vectors, tokens, err := s.vectors(c, r.Input)
	if err != nil {
		return err
	}
	type usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
	answer := struct {
		Object string   `json:"object"`
		Data   []vector `json:"data"`
		Model  string   `json:"model"`
		Usage  usage    `json:"usage"`
	}{"list", []vector{}, t.name, usage{tokens, tokens}}
	for i, v := range vectors {
		if size > len(v) {
			return web.Invalid("dimensions", "dimensions: found %d, vectors have %d", size, len(v))
		}
		if size > 0 {
			v = shorten(v, size)
		}
		x := vector{"embedding", i, any(v)}
		if r.Encoding == "base64" {
			x.Embedding = base64.StdEncoding.EncodeToString(littleEndian(v))
		}
		answer.Data = append(answer.Data, x)
	}
	return c.JSON(answer)
}

// vectors returns the embeddings of the inputs and the number of tokens in them.
func (s *Server) vectors(c *web.Call, inputs []prompt) ([][]float32, int, error) {
	ctx, e := c.Request.Context(), s.options.Embedder
	count := 0
	var texts []string
	var rows [][]int32
	for _, p := range inputs {
		if p.ids != nil {
			if len(p.ids) > e.MaxLength() {
				return nil, 0, web.Invalid("input", "input: found %d tokens, expected %d or fewer", len(p.ids), e.MaxLength())
			}
			rows = append(rows, p.ids)
			count += len(p.ids)
			continue
		}
		ids, _, err := s.tokenizer.EncodeWithin(p.text, e.MaxLength())
		if err != nil {
			return nil, 0, invalidBecause("input", err)
		}
		texts = append(texts, p.text)
		count += len(ids)
	}
	select {
	case s.embedding <- struct{}{}:
		defer func() { <-s.embedding }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if rows != nil {
		v, err := e.EmbedTokens(ctx, rows)
		return v, count, err
	}
	v, err := e.Embed(ctx, texts)
	return v, count, err
}

// shorten truncates an embedding to size elements. If v has length 1, the result is normalized
// again.
func shorten(v []float32, size int) []float32 {
	if math.Abs(norm(v)-1) > 1e-3 {
		return v[:size]
	}
	short := make([]float32, size)
	scale := norm(v[:size])
	for i := range short {
		if scale > 0 {
			short[i] = float32(float64(v[i]) / scale)
		}
	}
	return short
}

func norm(v []float32) float64 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

func littleEndian(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}
