package constrain

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// keyword is a keyword of JSON Schema: its parser, or the reason why it is unsupported.
type keyword struct {
	name    string
	read    func(p *parser, s *schema, v *value, at string) error // nil: ignored
	refused string                                                // reason
}

// keywords lists the keywords of the drafts 2020-12 and 7, and some other common ones.
var keywords []keyword

func init() { // avoids an initialization cycle with the parsers
	keywords = []keyword{
		{name: "type", read: (*parser).types}, {name: "enum", read: (*parser).enum}, {name: "const", read: (*parser).constant},
		{name: "$ref", read: (*parser).reference}, {name: "$defs", read: (*parser).definitions}, {name: "definitions", read: (*parser).definitions},
		{name: "allOf", read: (*parser).allOf}, {name: "anyOf", read: (*parser).anyOf}, {name: "oneOf", read: (*parser).oneOf},

		{name: "properties", read: (*parser).properties}, {name: "required", read: (*parser).required},
		{name: "additionalProperties", read: (*parser).additional},

		{name: "items", read: (*parser).items}, {name: "prefixItems", read: (*parser).prefixItems},
		{name: "minItems", read: (*parser).counts}, {name: "maxItems", read: (*parser).counts}, {name: "uniqueItems", read: (*parser).unique},

		{name: "minLength", read: (*parser).counts}, {name: "maxLength", read: (*parser).counts},
		{name: "pattern", read: (*parser).pattern}, {name: "format", read: (*parser).format},

		{name: "minimum", read: (*parser).bound}, {name: "maximum", read: (*parser).bound},
		{name: "exclusiveMinimum", read: (*parser).bound}, {name: "exclusiveMaximum", read: (*parser).bound},
		{name: "multipleOf", read: (*parser).multiple},
	}
	for _, name := range []string{
		"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment",
		"contentEncoding", "contentMediaType", "contentSchema", "$vocabulary",
	} {
		keywords = append(keywords, keyword{name: name})
	}
	for name, why := range map[string]string{
		"patternProperties": "names of properties are fixed", "propertyNames": "names of properties are fixed",
		"minProperties": "properties are not counted", "maxProperties": "properties are not counted",
		"contains": "items are not looked for", "minContains": "items are not counted by what they are", "maxContains": "items are not counted by what they are",
		"additionalItems":  "prefixItems and items say it in draft 2020-12",
		"unevaluatedItems": "items says it beside prefixItems", "unevaluatedProperties": "additionalProperties says it beside properties",
		"not": "what is not allowed cannot be kept from", "if": "anyOf says the cases", "then": "anyOf says the cases", "else": "anyOf says the cases",
		"dependentRequired": "anyOf says the cases", "dependentSchemas": "anyOf says the cases", "dependencies": "anyOf says the cases",
		"$anchor": "$ref takes a JSON pointer", "$dynamicRef": "$ref takes a JSON pointer", "$dynamicAnchor": "$ref takes a JSON pointer",
		"$recursiveRef": "$ref takes a JSON pointer", "$recursiveAnchor": "$ref takes a JSON pointer",
		"nullable": `"type" takes a list with "null"`,
	} {
		keywords = append(keywords, keyword{name: name, refused: why})
	}
}

// lookUp returns a keyword. An unknown one is an error, since a misspelled keyword would otherwise be ignored.
func lookUp(name, at string) (keyword, error) {
	var names []string
	for _, k := range keywords {
		if k.name == name {
			if k.refused != "" {
				return k, unsupported(at, "%q: %s", name, k.refused)
			}
			return k, nil
		}
		if k.refused == "" {
			names = append(names, k.name)
		}
	}
	return keyword{}, unsupported(at, "unknown keyword %q%s", name, suggest.DidYouMean(name, names))
}

func unsupported(at, format string, args ...any) error {
	return fmt.Errorf("constrain: %w: #%s: %s", ErrUnsupported, at, fmt.Sprintf(format, args...))
}

func malformed(at, format string, args ...any) error {
	return fmt.Errorf("constrain: %w: #%s: %s", ErrSchema, at, fmt.Sprintf(format, args...))
}

func tooLarge(at, format string, args ...any) error {
	return fmt.Errorf("constrain: #%s: %w: %s", at, ErrTooLarge, fmt.Sprintf(format, args...))
}
