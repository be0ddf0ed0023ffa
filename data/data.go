// Package data turns files into the batches of a training run: JSON lines
// (plain text, prompts with completions, conversations, pairs of texts, texts
// with labels, pairs of answers), plain text, and files that hold token ids already. Everything is
// tokenised once, when it is loaded. A Loader then gives any micro-batch of any
// step as a function of its settings and the step number, so that resuming needs
// nothing else.
//
// A line of JSON may hold more keys than those that are read. Metadata (id,
// source, …) is passed over. A key that says what is to be learned (label,
// weight, rejected, images, …) and that is not honoured is refused, unless it is
// null or empty.
package data

import (
	"encoding/json"
	"fmt"
	"runtime"
)

// Ignore is the label of a token that carries no loss, as in PyTorch.
const Ignore = -100

// Row is one document: token ids and, for each, the id again where the token
// carries loss and Ignore elsewhere. Labels stand before the shift by one:
// Labels[i] is predicted from the tokens before i.
type Row struct {
	IDs    []int32
	Labels []int32
}

// Tokenizer is what this package needs of a tokenizer. It is called from
// several goroutines at once.
type Tokenizer interface {
	// Encode gives the ids of text; addSpecial adds what the tokenizer puts
	// around a text, such as the begin-of-text token.
	Encode(text string, addSpecial bool) ([]int32, error)
	// EOS is the token that ends a text; false where there is none.
	EOS() (id int32, ok bool)
}

// ChatTemplate is what this package needs of a chat template. It is called
// from several goroutines at once.
type ChatTemplate interface {
	// RenderSpans renders a conversation and says which bytes of the text are
	// answers that the model should learn to give, what ends a turn included: all
	// but those of silent messages.
	// The spans are in ascending order and do not overlap.
	RenderSpans(c Conversation) (text string, answers []Span, err error)
}

// Conversation is one chat as the file has it: arrays in JSON. Tools is nil
// where the line has none.
type Conversation struct {
	Messages json.RawMessage
	Tools    json.RawMessage
	Silent   []int // numbers of messages whose answers are not learned
}

// Span is the half-open range [Start, End).
type Span struct{ Start, End int }

// Format names how a file is read.
type Format string

// The formats. FormatAuto goes by the ending of the name.
const (
	FormatAuto   Format = "auto"
	FormatJSONL  Format = "jsonl"  // one JSON object per line
	FormatText   Format = "text"   // plain text
	FormatTokens Format = "tokens" // safetensors with input_ids and labels
)

// TrainOn says which tokens carry loss.
type TrainOn string

// The choices of TrainOn. Plain text has no prompt, so all of it counts.
const (
	TrainOnAnswer TrainOn = "answer" // completions and the assistant's answers, with the end token
	TrainOnAll    TrainOn = "all"    // prompts too
)

// TooLong says what becomes of a row longer than MaxLength.
type TooLong string

// The choices of TooLong.
const (
	Truncate   TooLong = "truncate" // cut at its end
	Drop       TooLong = "drop"     // leave the row out
	RefuseLong TooLong = "error"    // stop loading
)

// BlankLine is the DocumentSeparator of documents with empty lines between
// them; lines of spaces count as empty.
const BlankLine = "blank-line"

// Options say how files become rows. The zero value reads files with token
// ids; everything else needs a Tokenizer.
type Options struct {
	Tokenizer Tokenizer
	Template  ChatTemplate  // for messages
	Rows      Rows          // LanguageRows where empty
	Texts     TextTokenizer // for rows that are read whole
	Problem   Problem       // of LabelledRows; SingleLabel where empty
	// Classes are the names of the classes of LabelledRows in the order of their ids.
	// Where empty they are those of the rows: names in the order of their bytes, or the
	// numbers up to the largest id.
	Classes   []string
	Types     int     // types of tokens of LabelledRows must lie below it; 0 does not check
	Format    Format  // FormatAuto where empty
	TrainOn   TrainOn // TrainOnAnswer where empty
	MaxLength int     // tokens of the longest row; 0 is no limit
	OnTooLong TooLong // Truncate where empty
	// DocumentSeparator splits plain text into rows: the text between
	// documents, or BlankLine. Where empty, the whole file is tokenised and
	// cut into windows of MaxLength.
	DocumentSeparator string
	VocabSize         int            // ids must lie below it; 0 does not check
	Workers           int            // goroutines that tokenise; 0 is one per core
	Progress          func(Progress) // called now and then, from the caller's goroutine
}

// Progress is how far loading has come.
type Progress struct {
	File        string // being read
	Bytes, Size int64  // read so far and in all, over all files
	Rows        int
	Tokens      int
}

// withDefaults fills in the zero fields and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.Format == "" {
		o.Format = FormatAuto
	}
	if o.Rows == "" {
		o.Rows = LanguageRows
	}
	if o.Problem == "" {
		o.Problem = SingleLabel
	}
	if o.TrainOn == "" {
		o.TrainOn = TrainOnAnswer
	}
	if o.OnTooLong == "" {
		o.OnTooLong = Truncate
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	for _, choice := range []struct {
		key, found string
		valid      []string
	}{
		{"rows", string(o.Rows), RowKinds()},
		{"problem", string(o.Problem), Problems()},
		{"format", string(o.Format), Formats()},
		{"train_on", string(o.TrainOn), TrainOns()},
		{"on_too_long", string(o.OnTooLong), TooLongs()},
	} {
		if err := oneOf(choice.key, choice.found, choice.valid); err != nil {
			return o, err
		}
	}
	if o.MaxLength < 0 || o.MaxLength == 1 {
		return o, &Error{Problem: fmt.Sprintf("max_length: found %d, expected at least 2, or 0 for no limit", o.MaxLength), Kind: ErrOption}
	}
	if err := o.checkClasses(); err != nil {
		return o, err
	}
	if o.Workers < 0 {
		return o, &Error{Problem: fmt.Sprintf("workers: found %d, expected ≥ 0", o.Workers), Kind: ErrOption}
	}
	return o, nil
}
