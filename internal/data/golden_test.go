package data

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// goldenDir has rows of each format with their token ids and labels, written by scripts/make_data_goldens.py.
const goldenDir = "testdata/formats"

// golden is a row of a format, rendered by a template. LLaMA-Factory has no prompts with completions of messages, and TRL
// no formats of pairs. TRL has labels for prompts with completions alone: of a conversation it learns all tokens, unless
// the template marks the answers.
type golden struct {
	Format, Template  string
	Row               json.RawMessage
	LlamaFactory, TRL *Row
}

// difference is a difference between another tool and lorafuse. The two differ in nothing else.
type difference struct {
	tool      string
	templates []string
	padded    bool // of the row whose texts begin and end with spaces; of the others if false
	what      string
	why       string
	change    func(g goldens, ours Row) Row // returns the row of the other tool
}

var differences = []difference{
	{
		"LLaMA-Factory", []string{"chatml", "gemma"}, false, "the line feed after the end of a turn carries loss",
		"it belongs to the answer in its templates, but a model stops at the end of the turn and never predicts it", goldens.learnLineFeeds,
	},
	{
		"TRL", []string{"chatml", "gemma"}, false, "the line feed after the end of a turn carries loss",
		"everything after the prompt is its completion", goldens.learnLineFeeds,
	},
	{
		"LLaMA-Factory", []string{"mistral"}, false, "no space before [/INST]",
		"it renders [INST] x[/INST], and Mistral's own template of that version [INST] x [/INST]", goldens.dropSpaces,
	},
	{
		"LLaMA-Factory", []string{"chatml"}, true, "the line feed after the end of a turn carries loss", "see above", goldens.learnLineFeeds,
	},
	{
		"LLaMA-Factory", []string{"gemma", "llama3"}, true, "spaces around texts are kept",
		"the templates of Gemma and Llama 3 trim texts", goldens.keepSpaces,
	},
	{
		"LLaMA-Factory", []string{"mistral"}, true, "no space before [/INST]", "see above", goldens.dropSpaces,
	},
}

// goldens compares rows with those of other tools.
type goldens struct {
	tok *tokenizer.Tokenizer
}

// learnLineFeeds gives loss to each line feed after a learned end of a turn.
func (g goldens) learnLineFeeds(r Row) Row {
	feed := g.ids("\n")[0]
	for i := 1; i < len(r.IDs); i++ {
		if r.IDs[i] == feed && r.Labels[i] == Ignore && r.Labels[i-1] != Ignore {
			r.Labels[i] = feed
		}
	}
	return r
}

// dropSpaces removes the space before each [/INST].
func (g goldens) dropSpaces(r Row) (out Row) {
	space, double, end := g.ids(" ")[0], g.ids("  ")[0], g.ids("[/INST]")[0]
	for i, id := range r.IDs {
		switch before := i+1 < len(r.IDs) && r.IDs[i+1] == end; {
		case before && id == space:
			continue
		case before && id == double:
			id = space
		}
		out.IDs, out.Labels = append(out.IDs, id), append(out.Labels, r.Labels[i])
	}
	return out
}

// keepSpaces puts a space before and after the texts of the row that has them.
func (g goldens) keepSpaces(r Row) (out Row) {
	put := func(text string, learned bool) {
		for _, id := range g.ids(text) {
			out.IDs = append(out.IDs, id)
			if !learned {
				id = Ignore
			}
			out.Labels = append(out.Labels, id)
		}
	}
	text, err := g.tok.Decode(r.IDs, false)
	if err != nil {
		panic(err)
	}
	prompt, rest, _ := strings.Cut(text, "kept?")
	put(strings.ReplaceAll(prompt, "spaces around", " spaces around "), false)
	put(" kept? "+rest, true)
	return out
}

// ids returns the ids of a text.
func (g goldens) ids(text string) []int32 {
	ids, err := g.tok.Encode(text, false)
	if err != nil {
		panic(err)
	}
	return ids
}

// TestGoldenFormats: rows of every format of conversations have the token ids and labels that LLaMA-Factory and TRL give
// them, but for the listed differences.
func TestGoldenFormats(t *testing.T) {
	tok, err := tokenizer.Load(filepath.Join(goldenDir, "tokenizer"))
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(goldenDir, "golden.jsonl"))
	require.NoError(t, err)
	compared, used := map[string]int{}, make([]bool, len(differences))
	for line := range bytes.Lines(raw) {
		var c golden
		require.NoError(t, json.Unmarshal(line, &c))
		template, err := chat.Find(c.Template, tok.SpecialTokens(), goldenDir)
		require.NoError(t, err)
		d, err := load(t, "t.jsonl", string(c.Row), Options{Tokenizer: tok, Template: Chat(template), VocabSize: tok.VocabSize()})
		require.NoError(t, err)
		require.Equal(t, c.Format, d.Sources()[0].Layout)
		padded := bytes.Contains(c.Row, []byte(`" spaces`))
		for tool, theirs := range map[string]*Row{"LLaMA-Factory": c.LlamaFactory, "TRL": c.TRL} {
			if theirs == nil {
				continue
			}
			want := d.Row(0)
			for i, x := range differences {
				if x.tool == tool && slices.Contains(x.templates, c.Template) && x.padded == padded {
					want, used[i] = x.change(goldens{tok}, want), true
				}
			}
			assert.Equal(t, want.IDs, theirs.IDs, "%s: ids of %s in %s: %s", tool, c.Format, c.Template, c.Row)
			if theirs.Labels != nil {
				assert.Equal(t, want.Labels, theirs.Labels, "%s: labels of %s in %s: %s", tool, c.Format, c.Template, c.Row)
			}
			compared[tool]++
		}
	}
	assert.Equal(t, map[string]int{"LLaMA-Factory": 48, "TRL": 20}, compared)
	for i, x := range differences {
		assert.True(t, used[i], "%s: %s", x.tool, x.what)
	}
}
