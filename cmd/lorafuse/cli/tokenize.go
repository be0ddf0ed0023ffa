package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// tokenizing is one run of `tokenize`.
type tokenizing struct {
	tokenizer *tokenizer.Tokenizer
	json      bool
	decode    bool
	noSpecial bool
}

func (a *app) tokenize() *cobra.Command {
	var t tokenizing
	var name string
	c := &cobra.Command{
		Use:   "tokenize --model DIR [FILE]",
		Short: "Convert text to token IDs and back",
		Long: `Convert the lines of FILE or of standard input to token IDs and back with the
tokenizer.json of a model. The other files of the model are not needed.

With --json each input line is {"text": "..."} or {"ids": [...]}. Each output line is
{"ids": [...], "text": "..."}, where text is decoded from the IDs. Without --json a line
of text becomes a line of IDs; --decode does the reverse.

The special tokens that the model expects are added on encoding and shown on decoding
unless --no-special is given.`,
		Example: `  echo "Hello, world" | lorafuse tokenize --model path/to/model
  echo "1 15 27" | lorafuse tokenize --model path/to/model --decode
  echo '{"text": "Hello"}' | lorafuse tokenize --model path/to/model --json`,
		Args: args(1),
		RunE: func(c *cobra.Command, args []string) error {
			if t.json && t.decode {
				return usagef(c.CommandPath(), "--decode does not go with --json, which detects the direction of each line")
			}
			dir, err := a.resolve(c.Context(), c.Name(), name, hub.Options{WithoutWeights: true})
			if err != nil {
				return err
			}
			if t.tokenizer, err = tokenizer.Load(dir); err != nil {
				return err
			}
			var in io.Reader = a.in
			file := "standard input"
			if len(args) == 1 && args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("tokenize: %w", err)
				}
				defer f.Close()
				in, file = f, args[0]
			}
			return eachLine(in, a.out, file, t.line)
		},
	}
	c.Flags().StringVarP(&name, "model", "m", "", "folder with tokenizer.json, or owner/name[@revision] on the hub")
	c.Flags().BoolVar(&t.json, "json", false, "read and write JSON lines")
	c.Flags().BoolVar(&t.decode, "decode", false, "convert lines of IDs to text")
	c.Flags().BoolVar(&t.noSpecial, "no-special", false, "neither add special tokens nor show them in decoded text")
	return c
}

// eachLine calls one for every line, without its line ending. Output is flushed before waiting for more input. Errors
// name file and line.
func eachLine(in io.Reader, out io.Writer, file string, one func(w io.Writer, line []byte) error) error {
	r, w := bufio.NewReader(in), bufio.NewWriter(out)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", file, err)
		}
		last := err != nil
		if len(line) > 0 {
			if err := one(w, bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))); err != nil {
				return errors.Join(w.Flush(), fmt.Errorf("%s:%d: %w", file, n, err))
			}
		}
		if last || r.Buffered() == 0 {
			if err := w.Flush(); err != nil || last {
				return err
			}
		}
	}
}

func (t *tokenizing) line(w io.Writer, line []byte) error {
	switch {
	case t.json:
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
		return t.jsonLine(w, line)
	case t.decode:
		return t.idsLine(w, string(line))
	}
	ids, err := t.tokenizer.Encode(string(line), !t.noSpecial)
	if err != nil {
		return err
	}
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(int(id))
	}
	_, err = fmt.Fprintln(w, strings.Join(words, " "))
	return err
}

// tokenized is one line of `tokenize --json`.
type tokenized struct {
	IDs  []int32 `json:"ids"`
	Text string  `json:"text"`
}

func (t *tokenizing) jsonLine(w io.Writer, line []byte) error {
	var in struct {
		Text *string  `json:"text"`
		IDs  *[]int32 `json:"ids"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return fmt.Errorf(`not {"text": "..."} or {"ids": [...]}: %w`, err)
	}
	out := tokenized{IDs: []int32{}}
	switch {
	case in.Text != nil && in.IDs != nil:
		return errors.New(`found text and ids, expected one of the two`)
	case in.Text != nil:
		ids, err := t.tokenizer.Encode(*in.Text, !t.noSpecial)
		if err != nil {
			return err
		}
		out.IDs = append(out.IDs, ids...)
	case in.IDs != nil:
		out.IDs = append(out.IDs, *in.IDs...)
	default:
		return errors.New(`found neither text nor ids, expected {"text": "..."} or {"ids": [...]}`)
	}
	var err error
	if out.Text, err = t.tokenizer.Decode(out.IDs, t.noSpecial); err != nil {
		return err
	}
	return encode(w, out, "")
}

func (t *tokenizing) idsLine(w io.Writer, line string) error {
	var ids []int32
	for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t,[]", r) }) {
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return fmt.Errorf("found %q, expected token ids", word)
		}
		ids = append(ids, int32(id))
	}
	text, err := t.tokenizer.Decode(ids, t.noSpecial)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, text)
	return err
}
