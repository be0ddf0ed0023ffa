// Package constrain implements structured outputs: it computes which tokens may follow so that generated text matches a
// JSON Schema or a regular expression, is one of several texts, or is valid JSON.
//
// [Schema] compiles a schema once to a [Grammar]: automata over bytes for strings, numbers and names, and states with a
// stack for arrays and objects, which may nest to any depth. A [Matcher] follows one text and computes the mask of
// allowed tokens, from a trie of the bytes of all tokens (a [Vocabulary]). The tokens allowed at a state of a string or
// number are computed once and cached. Only tokens that extend past its end are checked each time (the ideas of arXiv
// 2307.09702 and 2411.15100).
//
// The output always matches the schema. Not every matching text can be generated: of equivalent texts some are
// excluded, so that a model does not get lost in them.
//
//   - No white space, except for a single optional space after a comma or colon, as
//     json.dumps writes it. A model could write line breaks and indentation
//     endlessly.
//   - Properties are in the order of the schema, followed by additional ones if
//     additionalProperties is true or a schema. If it is absent, an object with
//     known properties has no others.
//   - Numbers have at most 20 digits before and after the point, unless their bounds
//     need more, and an exponent of at most two digits if they have no bounds. There
//     is no negative zero.
//   - Strings with a pattern, a format or an enum, and property names of objects with
//     known properties, have only the escapes that JSON requires.
//
// Supported keywords: type, enum, const, properties, required, additionalProperties, items, prefixItems, minItems,
// maxItems, minLength, maxLength, pattern, format (date, date-time, time, email, ipv4, uuid), minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, multipleOf, allOf, anyOf, oneOf if its alternatives are recognizably exclusive,
// $ref within the schema, also recursive, and $defs. Annotations are ignored. Other keywords are errors that name the
// keyword, as are patterns with look-around, back-references or word boundaries, and schemas that would take too much
// memory.
package constrain
