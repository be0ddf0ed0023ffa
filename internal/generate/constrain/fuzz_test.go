package constrain_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// FuzzSchema: an invalid schema is an error of this package; texts drawn from a valid one are JSON, and never stuck.
func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		`true`, `{"type":"object"}`, `{"properties":{"a":{"$ref":"#"}},"additionalProperties":false}`, `{"enum":[1,"a",{"b":[]}]}`,
		`{"type":"string","pattern":"^[^a-c\\d]{2,}(x|y)*$","maxLength":6}`, `{"type":"number","minimum":-1.5,"exclusiveMaximum":3e2,"multipleOf":0.5}`,
		`{"anyOf":[{"type":"array","prefixItems":[{"const":1}],"items":false,"minItems":1},{"format":"date-time"}]}`,
		`{"allOf":[{"required":["a"]},{"oneOf":[{"type":"integer"},{"type":["object","null"]}]}]}`, `{"minLength":2,"items":{"maxItems":3},"$defs":{"x":{"minItems":2}}}`,
	} {
		f.Add([]byte(s), uint64(1))
	}
	v, err := constrain.NewVocabulary(some)
	require.NoError(f, err)
	known := []error{constrain.ErrSchema, constrain.ErrUnsupported, constrain.ErrNothing, constrain.ErrTooLarge}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		g, err := constrain.Schema(raw)
		if err != nil {
			for _, k := range known {
				if errors.Is(err, k) {
					return
				}
			}
			t.Fatal(err)
		}
		m, err := g.Matcher(v)
		require.NoError(t, err)
		mask := make([]uint64, (v.Size()+63)/64)
		r := rand.New(rand.NewPCG(seed, 0))
		var text []byte
		for range 60 {
			if m.Done() && !json.Valid(text) {
				t.Fatalf("%s is no JSON", text)
			}
			if m.Ended() {
				return
			}
			m.Mask(mask)
			var can []int32
			for id := range int32(v.Size()) {
				if mask[id>>6]>>(id&63)&1 == 1 {
					can = append(can, id)
				}
			}
			if len(can) == 0 {
				t.Fatalf("a dead end behind %q", text)
			}
			id := can[r.IntN(len(can))]
			if err := m.Accept(id); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			text = append(text, some[id]...)
		}
	})
}
