package tokenizer

import "encoding/json"

// A decoder inverts one step of encoding. Decoders work on streams of tokens, so
// decoding incrementally and decoding at once use the same code.
type decoder interface {
	// open returns a sink that performs this step and passes its tokens on to next. If
	// fused is set, the tokens are fragments of a single token.
	open(next sink, fused bool) sink
	// fuses reports whether the step joins all tokens into one.
	fuses() bool
}

// A sink consumes tokens one by one.
type sink interface {
	token(text string)
	end()
}

var decoderNames = []string{
	"BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Sequence", "Strip", "WordPiece",
}

// readDecoders parses the "decoder" of a tokenizer.json into a flat list of steps; null
// gives the library's default, which joins tokens with spaces.
func readDecoders(raw json.RawMessage) ([]decoder, error) {
	kind, err := componentType("decoder", raw)
	if err != nil {
		return nil, err
	}
	if kind == "" {
		return []decoder{blankJoiner{}}, nil
	}
	return appendDecoders(nil, kind, raw)
}

func appendDecoders(steps []decoder, kind string, raw json.RawMessage) ([]decoder, error) {
	var c struct {
		Decoders      []json.RawMessage `json:"decoders"`
		Prefix        string            `json:"prefix"`
		Cleanup       bool              `json:"cleanup"`
		Suffix        string            `json:"suffix"`
		Pattern       json.RawMessage   `json:"pattern"`
		Content       string            `json:"content"`
		Start         int               `json:"start"`
		Stop          int               `json:"stop"`
		PadToken      string            `json:"pad_token"`
		WordDelimiter string            `json:"word_delimiter_token"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("decoder %s: %v", kind, err)
	}
	switch kind {
	case "ByteLevel":
		return append(steps, byteLevelDecoder{}), nil
	case "ByteFallback":
		return append(steps, byteFallback{}), nil
	case "Fuse":
		return append(steps, fuser{}), nil
	case "WordPiece":
		return append(steps, wordPieceDecoder{c.Prefix, c.Cleanup}), nil
	case "BPEDecoder":
		return append(steps, suffixDecoder(c.Suffix)), nil
	case "CTC":
		return append(steps, ctc{c.PadToken, c.WordDelimiter, c.Cleanup}), nil
	case "Metaspace":
		m, err := readMetaspace("decoder", raw)
		return append(steps, metaspaceDecoder{m.replacement, m.scheme != "never"}), err
	case "Strip":
		r, err := oneRune("decoder Strip: content", c.Content)
		if c.Start < 0 || c.Stop < 0 {
			return nil, malformed("decoder Strip: start %d, stop %d", c.Start, c.Stop)
		}
		return append(steps, stripDecoder{r, c.Start, c.Stop}), err
	case "Replace":
		p, err := readPattern("decoder Replace", c.Pattern)
		return append(steps, replaceDecoder{p, c.Content}), err
	case "Sequence":
		for _, raw := range c.Decoders {
			kind, err := componentType("decoder", raw)
			if err != nil {
				return nil, err
			}
			if kind == "" {
				continue
			}
			if steps, err = appendDecoders(steps, kind, raw); err != nil {
				return nil, err
			}
		}
		return steps, nil
	}
	return nil, unsupported("decoder", kind, decoderNames...)
}

// openDecoders chains the steps; the text arrives at last.
func openDecoders(steps []decoder, last sink) sink {
	fused := make([]bool, len(steps))
	for i := 1; i < len(steps); i++ {
		fused[i] = fused[i-1] || steps[i-1].fuses()
	}
	for i := len(steps) - 1; i >= 0; i-- {
		last = steps[i].open(last, fused[i])
	}
	return last
}

// whole collects the fragments of a fused token for a step that needs the whole
// token.
func whole(step sink, fused bool) sink {
	if !fused {
		return step
	}
	return &collector{next: step}
}

type collector struct {
	next sink
	text []byte
}

func (c *collector) token(text string) { c.text = append(c.text, text...) }

func (c *collector) end() {
	c.next.token(string(c.text))
	c.next.end()
}

// each applies f to every token; the argument first of f is true for the first
// token.
type each struct {
	next    sink
	f       func(text string, first bool) string
	started bool
}

func (e *each) token(text string) {
	text = e.f(text, !e.started)
	e.started = true
	e.next.token(text)
}

func (e *each) end() { e.next.end() }
