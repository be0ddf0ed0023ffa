package constrain_test

import (
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// The first allowed token of the vocabulary is chosen again and again, and the result matches the schema.
func Example() {
	g, err := constrain.Schema([]byte(`{
		"type": "object",
		"properties": {
			"city": {"type": "string", "pattern": "^[A-Z][a-z]{3}$"},
			"size": {"enum": ["small", "large"]}
		},
		"required": ["city", "size"],
		"additionalProperties": false
	}`))
	if err != nil {
		log.Fatal(err)
	}
	t, err := tokenizer.Load("../../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := t.TokenBytes()
	if err != nil {
		log.Fatal(err)
	}
	v, err := constrain.NewVocabulary(tokens) // once for a model
	if err != nil {
		log.Fatal(err)
	}
	m, err := g.Matcher(v) // once for an answer
	if err != nil {
		log.Fatal(err)
	}
	mask := make([]uint64, (v.Size()+63)/64)
	text := ""
	for !m.Ended() {
		m.Mask(mask)
		for id := range int32(v.Size()) {
			if mask[id/64]>>(id%64)&1 == 1 {
				if err := m.Accept(id); err != nil {
					log.Fatal(err)
				}
				text += string(tokens[id])
				break
			}
		}
	}
	fmt.Println(text)
	// Output:
	// {"city":"Aaaa","size":"large"}
}

// An unsupported schema is refused, with the location of the problem.
func ExampleSchema_refused() {
	_, err := constrain.Schema([]byte(`{"properties": {"age": {"type": "integer", "minimun": 0}}}`))
	fmt.Println(err)
	_, err = constrain.Schema([]byte(`{"type": "string", "pattern": "(?=x)"}`))
	fmt.Println(err)
	// Output:
	// constrain: unsupported in JSON Schema: #/properties/age: unknown keyword "minimun", did you mean "minimum"?
	// constrain: #/pattern: unsupported in JSON Schema: pattern "(?=x)": look-around is not supported at byte 1
}
