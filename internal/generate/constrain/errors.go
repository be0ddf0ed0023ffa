package constrain

import (
	"errors"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// Errors of this package. Errors about schemas name the location as a JSON pointer.
var (
	// ErrSchema is the error for an invalid schema.
	ErrSchema = errors.New("bad JSON Schema")
	// ErrUnsupported is the error for a keyword, or a value of a keyword, that is not supported exactly.
	ErrUnsupported = errors.New("unsupported in JSON Schema")
	// ErrNothing is the error for a schema that no value matches.
	ErrNothing = errors.New("no value fulfils the schema")
	// ErrTooLarge is the error for a schema that would need too much memory.
	ErrTooLarge = automaton.ErrTooLarge
	// ErrVocabulary is the error for a vocabulary that cannot write the texts of a grammar.
	ErrVocabulary = errors.New("vocabulary")
	// ErrToken is the error for a token that may not follow.
	ErrToken = errors.New("token does not fit the grammar")
)
