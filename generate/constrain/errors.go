package constrain

import (
	"errors"

	"github.com/lorafuse/lorafuse/generate/constrain/internal/automaton"
)

// Errors that this package wraps. Those of schemas name the place as a JSON pointer.
var (
	// ErrSchema: a schema that is none.
	ErrSchema = errors.New("bad JSON Schema")
	// ErrUnsupported: a keyword, or a value of one, that is not followed exactly.
	ErrUnsupported = errors.New("unsupported in JSON Schema")
	// ErrNothing: a schema that no value fulfils.
	ErrNothing = errors.New("no value fulfils the schema")
	// ErrTooLarge: a schema that would need more memory than one may have.
	ErrTooLarge = automaton.ErrTooLarge
	// ErrVocabulary: a vocabulary that cannot write what the grammar asks for.
	ErrVocabulary = errors.New("vocabulary")
	// ErrToken: a token that cannot follow.
	ErrToken = errors.New("token does not fit the grammar")
)
