package constrain_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"pgregory.net/rapid"
)

// made is a random schema, and a way to make texts of its instances: in the order of the schema, with optional spaces.
type made struct {
	schema string
	text   func(t *rapid.T) string
}

// maker makes schemas; definitions are the schemas that it can refer to.
type maker struct {
	t           *rapid.T
	definitions map[string]made
}

func (m *maker) choose(name string, n int) int { return rapid.IntRange(0, n-1).Draw(m.t, name) }

// schema makes a whole one, with definitions, one of which refers to itself.
func (m *maker) schema() made {
	m.definitions = map[string]made{}
	leaf := m.leaf()
	m.definitions["leaf"] = leaf
	m.definitions["tree"] = made{
		`{"type":"object","properties":{"v":{"$ref":"#/$defs/leaf"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"},"maxItems":3},"up":{"anyOf":[{"$ref":"#/$defs/tree"},{"type":"null"}]}},"required":["v","kids"],"additionalProperties":false}`,
		func(t *rapid.T) string { return tree(t, leaf, 2) },
	}
	root := m.any(3)
	if root.schema == "true" {
		root.schema = "{}"
	}
	head := strings.TrimPrefix(root.schema, "{")
	if head != "}" {
		head = "," + head
	}
	return made{fmt.Sprintf(`{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"x","$defs":{"leaf":%s,"tree":%s}%s`,
		leaf.schema, m.definitions["tree"].schema, head), root.text}
}

func tree(t *rapid.T, leaf made, depth int) string {
	kids, up := []string{}, ""
	if depth > 0 {
		for range rapid.IntRange(0, 2).Draw(t, "kids") {
			kids = append(kids, tree(t, leaf, depth-1))
		}
		if rapid.Bool().Draw(t, "up") {
			up = tree(t, leaf, depth-1)
		}
	}
	members := []string{member(t, "v", leaf.text(t)), member(t, "kids", list(t, kids))}
	switch {
	case up != "":
		members = append(members, member(t, "up", up))
	case rapid.Bool().Draw(t, "null"):
		members = append(members, member(t, "up", "null"))
	}
	return object(t, members)
}

func (m *maker) any(depth int) made {
	if depth == 0 {
		return m.leaf()
	}
	switch m.choose("kind", 12) {
	case 0, 1:
		return m.leaf()
	case 2, 3, 4, 5:
		return m.object(depth)
	case 6, 7:
		return m.array(depth)
	case 8:
		return m.tuple(depth)
	case 9:
		return m.anyOf(depth)
	case 10:
		return m.oneOf(depth)
	}
	name := rapid.SampledFrom([]string{"leaf", "tree"}).Draw(m.t, "definition")
	return made{fmt.Sprintf(`{"$ref":"#/$defs/%s"}`, name), m.definitions[name].text}
}

func (m *maker) leaf() made {
	switch m.choose("leaf", 9) {
	case 0:
		return made{`{"type":"null","description":"none"}`, func(*rapid.T) string { return "null" }}
	case 1:
		return made{`{"type":"boolean"}`, func(t *rapid.T) string { return fmt.Sprint(rapid.Bool().Draw(t, "boolean")) }}
	case 2:
		return m.integer()
	case 3:
		return m.number()
	case 4:
		return m.plainString()
	case 5:
		return m.pattern()
	case 6:
		return m.enum()
	case 7:
		return made{"true", anything}
	}
	return made{`{"type":["string","null","integer"]}`, func(t *rapid.T) string {
		return rapid.SampledFrom([]string{`"a"`, "null", "17", "-3"}).Draw(t, "several")
	}}
}

func anything(t *rapid.T) string {
	return rapid.SampledFrom([]string{`"x"`, "null", "1.5", "[]", `[1, "a",{}]`, `{"k":{"l": [true]}}`, `-2E+7`}).Draw(t, "anything")
}

func (m *maker) integer() made {
	low := rapid.IntRange(-300, 300).Draw(m.t, "low")
	high := low + rapid.IntRange(0, 400).Draw(m.t, "width")
	of := rapid.SampledFrom([]int{1, 1, 1, 2, 7}).Draw(m.t, "multiple")
	first := low
	for first%of != 0 {
		first++
	}
	if first > high {
		of, first = 1, low
	}
	parts := []string{`"type":"integer"`}
	if m.choose("exclusive", 2) == 0 {
		parts = append(parts, fmt.Sprintf(`"minimum":%d,"exclusiveMaximum":%d`, low, high+1))
	} else {
		parts = append(parts, fmt.Sprintf(`"exclusiveMinimum":%d,"maximum":%d.0`, low-1, high))
	}
	if of > 1 {
		parts = append(parts, fmt.Sprintf(`"multipleOf":%d`, of))
	}
	return made{"{" + strings.Join(parts, ",") + "}", func(t *rapid.T) string {
		return strconv.Itoa(first + of*rapid.IntRange(0, (high-first)/of).Draw(t, "integer"))
	}}
}

func (m *maker) number() made {
	if m.choose("bounded", 3) == 0 {
		return made{`{"type":"number"}`, func(t *rapid.T) string {
			return rapid.StringMatching(`-?[1-9]\d{0,5}(\.\d{1,5})?([eE][+-]?\d{1,2})?`).Draw(t, "number")
		}}
	}
	low := rapid.IntRange(-3000, 3000).Draw(m.t, "low")
	high := low + rapid.IntRange(0, 4000).Draw(m.t, "width")
	cents := func(n int) string { return new(big.Rat).SetFrac64(int64(n), 100).FloatString(2) }
	schema := fmt.Sprintf(`{"type":"number","minimum":%s,"maximum":%s}`, cents(low), cents(high))
	if m.choose("places", 3) == 0 {
		schema = fmt.Sprintf(`{"type":"number","minimum":%s,"maximum":%s,"multipleOf":0.01}`, cents(low), cents(high))
	}
	return made{schema, func(t *rapid.T) string {
		return cents(rapid.IntRange(low, high).Draw(t, "number"))
	}}
}

func (m *maker) plainString() made {
	low := rapid.IntRange(0, 4).Draw(m.t, "low")
	high := low + rapid.IntRange(0, 5).Draw(m.t, "more")
	return made{fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, low, high), func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(low, high).Draw(t, "length") {
			b.WriteString(rapid.SampledFrom([]string{"a", "é", "漢", "😀", `\n`, `\"`, `\\`, `\/`, `\u00e9`, `\ud83d\ude00`, `\uD83D\uDE00`, `\u0000`, " ", "{", ",", "\u2028", "\x7f"}).Draw(t, "character"))
		}
		return `"` + b.String() + `"`
	}}
}

func (m *maker) pattern() made {
	patterns := []struct{ schema, like string }{
		{`"pattern":"^[A-Z]{2,3}-\\d+$"`, `[A-Z]{2,3}-[0-9]{1,3}`}, {`"pattern":"^(?:yes|no|maybe é)$"`, `yes|no|maybe é`},
		{`"pattern":"^[^a-z]*$","maxLength":4`, `[A-Z😀]{0,4}`}, {`"pattern":"b"`, `a?b[a-z]?`}, {`"pattern":"^x|y$"`, `xab|aby|xy`},
		{`"format":"date"`, `20[0-9]{2}-0[1-9]-[12][0-8]`}, {`"format":"time"`, `[01][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,3})?Z`},
		{`"format":"date-time"`, `19[0-9]{2}-1[0-2]-0[1-9]T2[0-3]:[0-5][0-9]:[0-5][0-9]\+0[0-9]:[0-5][0-9]`},
		{`"format":"uuid"`, `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`}, {`"format":"ipv4"`, `1[0-9]{0,2}\.2[0-4]?\.[1-9]\.0`},
		{`"format":"email"`, `[a-z]{1,5}(\.[a-z0-9]{1,5}){0,2}@[a-z]{1,5}(-[a-z]{1,3})?\.(com|org)`}, {`"pattern":"^[\\w.]+$","minLength":3`, `[a-z_.]{3,6}`},
	}
	p := patterns[m.choose("pattern", len(patterns))]
	return made{`{"type":"string",` + p.schema + `}`, func(t *rapid.T) string {
		return spelled(rapid.StringMatching(p.like).Draw(t, "like"))
	}}
}

func spelled(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (m *maker) enum() made {
	all := []string{`"a"`, `"ab"`, `"b\n"`, "1", "12", "1.50", "-1e3", "null", "true", `["x",1]`, `{"k":"v"}`, `""`, `"é"`}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 4, rapid.ID[string]).Draw(m.t, "enum")
	schema := `{"enum":[` + strings.Join(some, ",") + `]}`
	if len(some) == 1 {
		schema = `{"const":` + some[0] + `}`
	}
	return made{schema, func(t *rapid.T) string { return rapid.SampledFrom(some).Draw(t, "value") }}
}

func (m *maker) array(depth int) made {
	item := m.any(depth - 1)
	low := rapid.IntRange(0, 3).Draw(m.t, "low")
	high := low + rapid.IntRange(0, 2).Draw(m.t, "more")
	bounds := fmt.Sprintf(`,"minItems":%d,"maxItems":%d`, low, high)
	if m.choose("bounds", 3) == 0 {
		low, high, bounds = 0, 4, ""
	}
	return made{fmt.Sprintf(`{"type":"array","items":%s%s}`, item.schema, bounds), func(t *rapid.T) string {
		var items []string
		for range rapid.IntRange(low, high).Draw(t, "items") {
			items = append(items, item.text(t))
		}
		return list(t, items)
	}}
}

func (m *maker) tuple(depth int) made {
	first, second, rest := m.any(depth-1), m.any(depth-1), m.any(depth-1)
	low := rapid.IntRange(0, 3).Draw(m.t, "low")
	return made{fmt.Sprintf(`{"type":"array","prefixItems":[%s,%s],"items":%s,"minItems":%d}`, first.schema, second.schema, rest.schema, low), func(t *rapid.T) string {
		var items []string
		for i := range rapid.IntRange(low, 4).Draw(t, "items") {
			items = append(items, []made{first, second, rest, rest}[i].text(t))
		}
		return list(t, items)
	}}
}

func (m *maker) anyOf(depth int) made {
	a, b := m.any(depth-1), m.any(depth-1)
	return made{fmt.Sprintf(`{"anyOf":[%s,%s]}`, a.schema, b.schema), func(t *rapid.T) string {
		return []made{a, b}[rapid.IntRange(0, 1).Draw(t, "alternative")].text(t)
	}}
}

// oneOf makes objects that a constant tells apart.
func (m *maker) oneOf(depth int) made {
	a, b := m.any(depth-1), m.any(depth-1)
	form := `{"type":"object","properties":{"kind":{"const":%q},"x":%s},"required":["kind","x"],"additionalProperties":false}`
	return made{fmt.Sprintf(`{"oneOf":[`+form+`,`+form+`,{"type":"integer"}]}`, "a", a.schema, "b", b.schema), func(t *rapid.T) string {
		switch rapid.IntRange(0, 2).Draw(t, "alternative") {
		case 0:
			return object(t, []string{member(t, "kind", `"a"`), member(t, "x", a.text(t))})
		case 1:
			return object(t, []string{member(t, "kind", `"b"`), member(t, "x", b.text(t))})
		}
		return "5"
	}}
}

func (m *maker) object(depth int) made {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "ab", "b", "é", "x y", "q\"", "long_name"}), 0, 4, rapid.ID[string]).Draw(m.t, "names")
	var properties, required []string
	values := make([]made, len(names))
	must := make([]bool, len(names))
	for i, n := range names {
		values[i] = m.any(depth - 1)
		properties = append(properties, spelled(n)+":"+values[i].schema)
		if must[i] = m.choose("required", 2) == 0; must[i] {
			required = append(required, spelled(n))
		}
	}
	schema := `"properties":{` + strings.Join(properties, ",") + `},"required":[` + strings.Join(required, ",") + `]`
	others := made{"true", anything}
	more := 2
	switch m.choose("additional", 4) {
	case 0:
		schema += `,"additionalProperties":false`
		more = 0
	case 1:
		if len(names) > 0 {
			more = 0
		}
	case 2:
		schema += `,"additionalProperties":true`
	default:
		others = m.any(depth - 1)
		schema += `,"additionalProperties":` + others.schema
	}
	schema = `{"type":"object",` + schema + `}`
	if m.choose("split", 4) == 0 {
		schema = `{"allOf":[` + schema + `,{"type":["object","null"]}]}`
	}
	return made{schema, func(t *rapid.T) string {
		var members []string
		for i, n := range names {
			if must[i] || rapid.Bool().Draw(t, "there") {
				members = append(members, member(t, n, values[i].text(t)))
			}
		}
		for i := range rapid.IntRange(0, more).Draw(t, "others") {
			members = append(members, member(t, []string{"abc", ""}[i], others.text(t)))
		}
		return object(t, members)
	}}
}

// space returns a space or nothing.
func space(t *rapid.T) string { return rapid.SampledFrom([]string{"", " "}).Draw(t, "space") }

func member(t *rapid.T, name, value string) string { return spelled(name) + ":" + space(t) + value }

func list(t *rapid.T, items []string) string {
	return "[" + strings.Join(items, ","+space(t)) + "]"
}

func object(t *rapid.T, members []string) string {
	return "{" + strings.Join(members, ","+space(t)) + "}"
}
