package tools

import "io"

// ids generates IDs of calls.
type ids struct {
	random io.Reader
	style  idStyle
}

// idStyle is the form of a call ID.
type idStyle int

const (
	long           idStyle = iota // call_ and 24 characters, as OpenAI's
	nineCharacters                // the only form that Mistral's templates accept
)

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func (g ids) next() string {
	if g.style == nineCharacters {
		return g.draw(9)
	}
	return "call_" + g.draw(24)
}

// draw returns n random characters, uniformly distributed.
func (g ids) draw(n int) string {
	out, b := make([]byte, 0, n), make([]byte, 1)
	for len(out) < n {
		if _, err := io.ReadFull(g.random, b); err != nil {
			b[0] = 0 // an exhausted source only makes IDs less random
		}
		if k := int(b[0]) & 63; k < len(alphabet) {
			out = append(out, alphabet[k])
		}
	}
	return string(out)
}
