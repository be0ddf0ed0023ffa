// Package data loads training data and assembles it into batches. It reads rows (plain text, prompts with completions,
// conversations, questions with answers, text pairs, labelled texts, preferences) from JSON, CSV and Parquet, plain text,
// and files of token ids. [Load] tokenizes everything once. A [Loader] then returns any micro-batch of any step as a
// function of its settings and the step number, so a resumed run needs no other state.
//
// A file format is a fileFormat in rowFormats, and a way to spread rows over columns a layout in layouts. Both are
// detected from the contents of a file, and [Dataset.Sources] reports them.
//
// A row may have more columns than are read. Metadata (id, source, …) is ignored. A key that changes what is learned
// (label, weight, rejected, images, …) but is not supported is an error, unless its value is null or empty.
package data

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"runtime"
)

// Ignore is the label of a token without loss, as in PyTorch.
const Ignore = -100

// Row is a document: token ids and, for each token, its id again if it carries loss, or Ignore. Labels are not shifted:
// Labels[i] is predicted from the tokens before i.
type Row struct {
	IDs    []int32
	Labels []int32
}

// Tokenizer is the interface of a tokenizer. It must be safe for concurrent use.
type Tokenizer interface {
	// Encode returns the ids of text. If addSpecial is set, it adds the special tokens around a text, such as the
	// begin-of-text token.
	Encode(text string, addSpecial bool) ([]int32, error)
	// EOS returns the token that ends a text; ok is false if there is none.
	EOS() (id int32, ok bool)
}

// ChatTemplate is the interface of a chat template. It must be safe for concurrent use.
type ChatTemplate interface {
	// RenderSpans renders a conversation and returns the byte ranges of the answers that the model should learn. They
	// include the end of a turn, and exclude silent messages. The spans are in ascending order and do not overlap.
	RenderSpans(c Conversation) (text string, answers []Span, err error)
}

// Conversation is a chat as JSON arrays from a file. Tools is nil if the line has none.
type Conversation struct {
	Messages json.RawMessage
	Tools    json.RawMessage
	Silent   []int // indices of messages whose answers are not learned
}

// Span is the half-open range [Start, End).
type Span struct{ Start, End int }

// Format is a file format.
type Format string

// File formats. FormatAuto selects one by the contents of the file and, for text, by the ending of its name. Files of all
// formats may be compressed by gzip or zstd.
const (
	FormatAuto    Format = "auto"
	FormatJSONL   Format = "jsonl" // one JSON object per line
	FormatJSON    Format = "json"  // an array of JSON objects
	FormatCSV     Format = "csv"   // a table with a header; the separator is the header's
	FormatTSV     Format = "tsv"
	FormatParquet Format = "parquet"
	FormatText    Format = "text"   // plain text
	FormatTokens  Format = "tokens" // safetensors with input_ids and labels
)

// TrainOn selects which tokens carry loss.
type TrainOn string

// Values of TrainOn. All of plain text carries loss, since it has no prompt.
const (
	TrainOnAnswer TrainOn = "answer" // completions and the assistant's answers, with the end token
	TrainOnAll    TrainOn = "all"    // prompts too
)

// TooLong selects how a row longer than MaxLength is handled.
type TooLong string

// Values of TooLong.
const (
	Truncate   TooLong = "truncate" // cut at its end
	Drop       TooLong = "drop"     // leave the row out
	RefuseLong TooLong = "error"    // stop loading
)

// BlankLine is a DocumentSeparator for documents that are separated by blank lines; lines of spaces count as blank.
const BlankLine = "blank-line"

// Options configures how files become rows. With the zero value, files of token ids can be read; all others need a
// Tokenizer.
type Options struct {
	Tokenizer Tokenizer
	Template  ChatTemplate  // for conversations
	Rows      Rows          // default LanguageRows
	Texts     TextTokenizer // for whole-row tasks
	Problem   Problem       // of LabelledRows; default SingleLabel
	// Classes are the class names of LabelledRows in order of their ids. If empty, they are taken from the rows: names
	// in byte order, or the numbers up to the largest id.
	Classes []string
	Types   int    // number of token types of LabelledRows; 0 does not check
	Format  Format // default FormatAuto
	// Columns maps expected names of columns to the names in the files, such as prompt to question. IgnoreColumns are columns of the files that are not read.
	Columns       map[string]string
	IgnoreColumns []string
	TrainOn       TrainOn // default TrainOnAnswer
	MaxLength     int     // maximum tokens per row; 0 is no limit
	OnTooLong     TooLong // default Truncate
	// DocumentSeparator splits plain text into rows: the text between documents, or BlankLine. If empty, the whole file
	// is tokenized and cut into windows of MaxLength.
	DocumentSeparator string
	// Files holds the files, under their names; nil reads them from the disk.
	Files fs.FS
	// Resolve, if not nil, returns the files of other entries, such as datasets of the Hub, or none for an unknown one.
	Resolve   func(name string) (files []string, err error)
	VocabSize int // ids must be smaller; 0 does not check
	// InMemory is the number of tokens to keep in memory, 0 for 8 Mi. The tokens of a larger dataset go to a file without
	// a name in CacheDir, by default lorafuse in the user's cache folder, and rows are read from there.
	InMemory  int
	CacheDir  string
	MaxRows   int            // rows after which loading stops; 0 reads all
	ParseOnly bool           // check rows without tokenizing them; the tokens of the dataset have no meaning
	Refused   func(error)    // if not nil, called with the error of each bad row and file, in order; loading continues
	Workers   int            // goroutines for tokenization; 0 is one per core
	Progress  func(Progress) // called from time to time, on the caller's goroutine
}

// Progress reports the progress of loading.
type Progress struct {
	File        string // currently read
	Bytes, Size int64  // read so far and in total, over all files
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
	if o.InMemory == 0 {
		o.InMemory = inMemory
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
