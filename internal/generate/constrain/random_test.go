package constrain_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// some are tokens that end within characters, and run over the ends of strings, numbers
// and names.
var some = tokens(`{"`, `":`, `": `, `":"`, `", "`, `","`, `"}`, `"},{"`, `"]`, `]}`, `}}`, `[]`, `{}`, `[[`, `,"`, `, "`, ` "`, `: "`, `a"`, `ab`, `abc`, `"a":`,
	`"a`, `"ab`, `12`, `123`, `0.`, `.5`, `1,`, `1}`, `1]`, `-1`, `e5`, `null`, `true`, `false`, `nul`, `ll}`, "\xe6\xbc", "\xbc\xa2", "\xa2\"", "é", "\xc3", "漢", "😀",
	"\xf0\x9f", "\x98\x80", "\x98\x80\",\"", `\"`, `\u`, `\u00`, `\ud83d`, `\ude00`, `e9"`, `\\`, `\n`, `20`, `-0`, `2024-`, `:00`, `Z"`, `@`, `.com"`, `yes"`,
	`"kind": "`, `"kind":"a","x":`, `"v":`, `"kids":[`, `]},{"v":`, `,`, `a`, strings.Repeat(" ", 40), strings.Repeat("a", 9), `long_name`, `"b\n",`)

// checks is the number of random schemas that are tried.
func checks(t *testing.T) {
	n := "300"
	if os.Getenv("LORAFUSE_LONG") == "1" {
		n = "10000"
	}
	old := flag.Lookup("rapid.checks").Value.String()
	require.NoError(t, flag.Set("rapid.checks", n))
	t.Cleanup(func() { flag.Set("rapid.checks", old) })
}

// validator validates with another implementation of JSON Schema.
func validator(t require.TestingT, schema string) *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	require.NoError(t, err)
	require.NoError(t, c.AddResource("schema.json", document))
	s, err := c.Compile("schema.json")
	require.NoError(t, err, schema)
	return s
}

func requireValid(t require.TestingT, v *jsonschema.Schema, text, schema string) {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err, "%s by %s", text, schema)
	require.NoError(t, v.Validate(value), "%s by %s", text, schema)
}

// Instances of random schemas are accepted for any division into tokens.
func TestInstances(t *testing.T) {
	checks(t)
	v, err := constrain.NewVocabulary(some)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		s := (&maker{t: t}).schema()
		g, err := constrain.Schema([]byte(s.schema))
		require.NoError(t, err, s.schema)
		valid := validator(t, s.schema)
		mask := make([]uint64, (v.Size()+63)/64)
		for range 3 {
			text := s.text(t)
			requireValid(t, valid, text, s.schema)
			m, err := g.Matcher(v)
			require.NoError(t, err)
			for rest := text; rest != ""; {
				require.False(t, m.Ended())
				var fit []int32
				for id, b := range some {
					if strings.HasPrefix(rest, string(b)) {
						fit = append(fit, int32(id))
					}
				}
				id := rapid.SampledFrom(fit).Draw(t, "token")
				m.Mask(mask)
				for _, x := range fit {
					require.True(t, mask[x>>6]>>(x&63)&1 == 1, "token %q at %q of %s by %s", some[x], rest, text, s.schema)
				}
				if only, ok := m.Forced(); ok {
					require.Equal(t, only, id)
				}
				require.NoError(t, m.Accept(id), "at %q of %s by %s", rest, text, s.schema)
				rest = rest[len(some[id]):]
			}
			require.True(t, m.Done(), "%s by %s", text, s.schema)
		}
	})
}

// Every text drawn from the masks is valid, and never reaches a dead end.
func TestDraws(t *testing.T) {
	checks(t)
	v, err := constrain.NewVocabulary(some)
	require.NoError(t, err)
	long, texts := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := (&maker{t: t}).schema()
		g, err := constrain.Schema([]byte(s.schema))
		require.NoError(t, err, s.schema)
		valid := validator(t, s.schema)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range 3 {
			texts++
			text, ok := draw(t, g, v, r)
			if !ok {
				long++
				continue
			}
			requireValid(t, valid, text, s.schema)
		}
	})
	require.Less(t, long, texts/20+2, "texts of %d that did not end", texts)
}

// draw writes a text; after some tokens it hurries to its end.
func draw(t *rapid.T, g *constrain.Grammar, v *constrain.Vocabulary, r *rand.Rand) (string, bool) {
	m, err := g.Matcher(v)
	require.NoError(t, err)
	mask := make([]uint64, (v.Size()+63)/64)
	var text strings.Builder
	patience := r.IntN(60)
	for n := range 3000 {
		if m.Ended() || m.Done() && (n > patience || r.IntN(4) == 0) {
			return text.String(), true
		}
		m.Mask(mask)
		has := func(id int32) bool { return mask[id>>6]>>(id&63)&1 == 1 }
		var can []int32
		for id := range int32(v.Size()) {
			if has(id) {
				can = append(can, id)
			}
		}
		require.NotEmpty(t, can, "a dead end behind %q", text.String())
		if only, ok := m.Forced(); ok {
			require.Equal(t, []int32{only}, can)
		}
		id := can[r.IntN(len(can))]
		if n > patience {
			for _, b := range `"}]ntf0` {
				if has(b) {
					id = b
					break
				}
			}
		}
		if other := int32(r.IntN(v.Size())); !has(other) {
			require.ErrorIs(t, m.Accept(other), constrain.ErrToken, "%q behind %q", some[other], text.String())
		}
		require.NoError(t, m.Accept(id), "%q behind %q", some[id], text.String())
		text.Write(some[id])
	}
	return text.String(), false
}
