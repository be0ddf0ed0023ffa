// Package constrain keeps what a model writes to a JSON Schema, or to JSON: it says
// which tokens can follow.
//
// A schema is compiled once to a [Grammar]: automata over bytes for strings, numbers and
// names, and states with a stack for arrays and objects, which may nest without end. A
// [Matcher] follows one text and gives the mask of the tokens that can follow, from a
// trie of the bytes of all tokens (a [Vocabulary]). What is found out for a place within
// a string or a number holds wherever this stands, and is kept; only tokens that end it
// and go on are looked at again (the ideas of arXiv 2307.09702 and 2411.15100).
//
// What is written fulfils the schema, always. It is not all that does: of the texts that
// mean the same, some are left out, so that a model does not lose its way in them.
//
//   - No white space, but for one space that may follow a comma or a colon, as models
//     have it from json.dumps. Line breaks and indents would be places where a model can
//     write for ever without a word.
//   - Properties come in the order of the schema, then the others, if
//     additionalProperties says what they are, or true. Where it is not there, an object
//     that knows properties has no others.
//   - Numbers have no more than 20 digits before and behind the point, where their
//     bounds do not ask for more, and an exponent of at most two where nothing bounds
//     them; there is no negative zero.
//   - Strings that have a pattern, a format or a place in an enum, and names of
//     properties in objects that know some, have escapes only where they must.
//
// Keywords: type, enum, const, properties, required, additionalProperties, items,
// prefixItems, minItems, maxItems, minLength, maxLength, pattern, format (date,
// date-time, time, email, ipv4, uuid), minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf, allOf, anyOf, oneOf where its alternatives are seen to
// exclude each other, $ref within the schema, recursive too, and $defs. Annotations are
// passed over. All others are refused by name, and so are patterns with look-around,
// back-references or borders of words, and what would take too much memory.
package constrain
