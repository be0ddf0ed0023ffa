package data

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// content is rows in one layout, with the same rows as text, completions or messages.
type content struct {
	name, summary string
	columns       []string
	rows          [][]any // cells: text, or values that are written as JSON
	same          []string
}

var contents = []content{
	{
		name: "text", columns: []string{"text"}, rows: [][]any{{"one, \"two\"\nthree"}, {"é;\ttab\r\nend"}},
		same: []string{`{"text": "one, \"two\"\nthree"}`, `{"text": "é;\ttab\r\nend"}`},
	},
	{
		name: "prompt and completion", summary: "prompt → completion", columns: []string{"id", "prompt", "completion"},
		rows: [][]any{{"7", "2 + 2 = ", "4"}, {"8", "a,b", "c\nd"}},
		same: []string{`{"prompt": "2 + 2 = ", "completion": "4"}`, `{"prompt": "a,b", "completion": "c\nd"}`},
	},
	{
		name: "alpaca", summary: "instruction + input → output", columns: []string{"instruction", "input", "output"},
		rows: [][]any{{"Add.", "1, 2", "3"}, {"Say hi.", nil, "hi"}},
		same: []string{
			`{"messages": [{"role": "user", "content": "Add.\n1, 2"}, {"role": "assistant", "content": "3"}]}`,
			`{"messages": [{"role": "user", "content": "Say hi."}, {"role": "assistant", "content": "hi"}]}`,
		},
	},
	{
		name: "question/answer", summary: "question → answer", columns: []string{"question", "answer"}, rows: [][]any{{"q?", "a"}},
		same: []string{`{"messages": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": "a"}]}`},
	},
	{
		name: "query/response", summary: "query → response", columns: []string{"query", "response"}, rows: [][]any{{"q?", "a"}},
		same: []string{`{"messages": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": "a"}]}`},
	},
	{
		name: "input/output", summary: "input → output", columns: []string{"input", "output"}, rows: [][]any{{"q?", "a"}},
		same: []string{`{"messages": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": "a"}]}`},
	},
	{
		name: "ShareGPT", summary: "conversations", columns: []string{"conversations"},
		rows: [][]any{{[]map[string]string{{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}, {"from": "user", "value": "v"}, {"from": "chatgpt", "value": "w"}}}},
		same: []string{`{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": "v"}, {"role": "assistant", "content": "w"}]}`},
	},
	{
		name: "messages", columns: []string{"messages"},
		rows: [][]any{{[]map[string]string{{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}}}},
		same: []string{`{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}`},
	},
	{
		name: "prompt and completion messages", summary: "prompt → completion", columns: []string{"prompt", "completion"},
		rows: [][]any{{[]map[string]string{{"role": "user", "content": "x"}}, []map[string]string{{"role": "assistant", "content": "y"}}}},
		same: []string{`{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}`},
	},
}

// asJSON returns a row as a JSON object.
func (c content) asJSON(t testing.TB, row []any) string {
	var parts []string
	for i, name := range c.columns {
		raw, err := json.Marshal(row[i])
		require.NoError(t, err)
		parts = append(parts, fmt.Sprintf("%q: %s", name, raw))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// containers write rows as files, by the endings of their names.
var containers = map[string]func(t testing.TB, c content) []byte{
	".jsonl": func(t testing.TB, c content) []byte {
		var b bytes.Buffer
		for _, row := range c.rows {
			fmt.Fprintln(&b, c.asJSON(t, row))
		}
		return b.Bytes()
	},
	".json": func(t testing.TB, c content) []byte {
		var rows []string
		for _, row := range c.rows {
			rows = append(rows, "  "+c.asJSON(t, row))
		}
		return []byte("[\n" + strings.Join(rows, ",\n") + "\n]\n")
	},
	".csv":     func(t testing.TB, c content) []byte { return c.table(t, ',') },
	".tsv":     func(t testing.TB, c content) []byte { return c.table(t, '\t') },
	".parquet": func(t testing.TB, c content) []byte { return c.parquet(t) },
}

// table writes CSV.
func (c content) table(t testing.TB, separator rune) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Comma = separator
	require.NoError(t, w.Write(c.columns))
	for _, row := range c.rows {
		var cells []string
		for _, cell := range row {
			switch cell := cell.(type) {
			case nil:
				cells = append(cells, "")
			case string:
				cells = append(cells, cell)
			default:
				raw, err := json.Marshal(cell)
				require.NoError(t, err)
				cells = append(cells, string(raw))
			}
		}
		require.NoError(t, w.Write(cells))
	}
	w.Flush()
	return b.Bytes()
}

// message is a message as Parquet files of Python's datasets have it: with the fields of all messages.
type message struct {
	Role      *string `parquet:"role,optional"`
	Content   *string `parquet:"content,optional"`
	From      *string `parquet:"from,optional"`
	Value     *string `parquet:"value,optional"`
	ToolCalls []struct {
		Name *string `parquet:"name,optional"`
	} `parquet:"tool_calls,list,optional"`
}

// parquet writes Parquet: text as optional strings, conversations as lists of structs whose fields are optional.
func (c content) parquet(t testing.TB) []byte {
	var b bytes.Buffer
	if _, list := c.rows[0][0].([]map[string]string); list {
		group := parquet.Group{}
		for _, name := range c.columns {
			group[name] = parquet.Optional(parquet.List(parquet.Optional(parquet.SchemaOf(message{}))))
		}
		w := parquet.NewGenericWriter[map[string][]*message](&b, parquet.NewSchema("rows", group))
		for _, row := range c.rows {
			values := map[string][]*message{}
			for i, name := range c.columns {
				for _, m := range row[i].([]map[string]string) {
					text := func(key string) *string {
						if v, ok := m[key]; ok {
							return &v
						}
						return nil
					}
					values[name] = append(values[name], &message{Role: text("role"), Content: text("content"), From: text("from"), Value: text("value")})
				}
			}
			_, err := w.Write([]map[string][]*message{values})
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	group := parquet.Group{}
	for _, name := range c.columns {
		group[name] = parquet.Optional(parquet.String())
	}
	w := parquet.NewWriter(&b, parquet.NewSchema("rows", group), parquet.Compression(&parquet.Zstd))
	for _, row := range c.rows {
		values := map[string]any{}
		for i, name := range c.columns {
			if row[i] != nil {
				values[name] = row[i]
			}
		}
		require.NoError(t, w.Write(values))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// wrappers compress files, by the endings that they add.
var wrappers = map[string]func(t testing.TB, raw []byte) []byte{
	"": func(_ testing.TB, raw []byte) []byte { return raw },
	".gz": func(t testing.TB, raw []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(raw)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return b.Bytes()
	},
	".zst": func(t testing.TB, raw []byte) []byte {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		require.NoError(t, err)
		defer z.Close()
		return z.EncodeAll(raw, nil)
	},
}

// TestEqualFormats: the rows of all formats, containers and compressions equal those of the JSON lines of the issue.
func TestEqualFormats(t *testing.T) {
	files := 0
	for _, c := range contents {
		want, err := load(t, "same.jsonl", strings.Join(c.same, "\n"), Options{})
		require.NoError(t, err, c.name)
		for end, write := range containers {
			if _, list := c.rows[0][0].([]map[string]string); list && len(c.columns) > 1 && (end == ".csv" || end == ".tsv") {
				continue // a prompt may be text that looks like a list
			}
			raw := write(t, c)
			for more, wrap := range wrappers {
				name := "rows" + end + more
				d, err := load(t, name, string(wrap(t, raw)), Options{})
				require.NoError(t, err, "%s: %s", c.name, name)
				require.Equal(t, rowsOf(want), rowsOf(d), "%s: %s", c.name, name)
				require.Equal(t, want.Digest(), d.Digest())
				line := fmt.Sprintf("%s, %s of %s", c.name, countRows(len(c.rows)), name)
				if c.summary != "" {
					line += ": " + c.summary
				}
				require.Equal(t, []string{line}, d.Report())
				files++
			}
		}
	}
	require.GreaterOrEqual(t, files, 30)
}

// TestContentBeforeName: a file's name does not decide what its contents show.
func TestContentBeforeName(t *testing.T) {
	for _, name := range []string{"rows", "rows.data", "rows.jsonl", "rows.csv"} {
		for _, c := range contents[:3] {
			for _, end := range []string{".jsonl", ".json", ".parquet"} {
				d, err := load(t, name, string(containers[end](t, c)), Options{})
				require.NoError(t, err, "%s as %s", end, name)
				require.Equal(t, len(c.rows), d.Len())
			}
		}
	}
	for _, separator := range ",;\t|" {
		d, err := load(t, "rows.csv", string(contents[2].table(t, separator)), Options{})
		require.NoError(t, err, "%q", separator)
		require.Equal(t, 2, d.Len())
	}
	d, err := load(t, "rows.txt", `[{"text": "a"}]`, Options{MaxLength: 100})
	require.NoError(t, err)
	require.Equal(t, idsOf(`[{"text": "a"}]`, eos), d.Row(0).IDs, "text may be anything")
}

// TestBadFiles: damaged and ambiguous files are refused with file, row, found and expected.
func TestBadFiles(t *testing.T) {
	alpacaCSV := string(contents[2].table(t, ','))
	pq := string(contents[2].parquet(t))
	gz := string(wrappers[".gz"](t, []byte(strings.Repeat(alpacaCSV, 50))))
	zst := string(wrappers[".zst"](t, []byte(alpacaCSV)))
	for _, c := range []struct{ name, file, content, text string }{
		{"no header", "t.csv", "\"a long text, which is a row\",5\nx,6\n", `t.csv:1: found "5" as the name of column 2, expected a line of column names, such as prompt,completion, before the rows`},
		{"an unknown header", "t.csv", "ask,reply\nx,y\n", `t.csv:2: found ["ask" "reply"], expected text, prompt and completion`},
		{"ragged", "t.csv", "prompt,completion\nx,y\nx,y,z\n", "t.csv:3: found 3 columns, expected 2 as in the header"},
		{"dialects", "t.csv", "prompt,completion\nx,y\nx;y\n", `t.csv:3: found 1 columns, expected 2 as in the header (',' separates the columns of the header, and ';' those of this row)`},
		{"Latin-1", "t.csv", "prompt,completion\nx,caf\xe9\n", `t.csv:2: column "completion": byte 4 is not UTF-8 (0xe9 is 'é' in Latin-1: convert the file with iconv -f latin1 -t utf-8)`},
		{"UTF-16", "t.csv", "\xff\xfep\x00", "t.csv:1: the file is UTF-16"},
		{"a bare quote", "t.csv", "prompt,completion\nx,say \"y\"\n", "t.csv:2: byte 7: found a quote within a cell"},
		{"an open quote", "t.csv", "prompt,completion\nx,\"y\nz\n", "t.csv:2: found a cell in quotes that does not end properly"},
		{"a column twice", "t.csv", "text,text\nx,y\n", `t.csv:1: found the column "text" twice`},
		{"an empty cell", "t.csv", "prompt,completion\nx,\n", "t.csv:2: completion: found null, expected text"},
		{"a label", "t.csv", "text,label\nx,1\n", "t.csv:2: label: found a number beside text, which would be ignored"},
		{"an empty file", "t.csv", "", "t.csv: no rows"},
		{"truncated Parquet", "t.parquet", pq[:len(pq)/2], "t.parquet: the Parquet file ends without its index: it is truncated"},
		{"damaged Parquet", "t.parquet", pq[:len(pq)-40] + strings.Repeat("\xff", 32) + pq[len(pq)-8:], "t.parquet: not a valid Parquet file"},
		{"no Parquet", "t.parquet", alpacaCSV, `t.parquet: found no Parquet file (it begins with "instruct"), expected it to begin with PAR1`},
		{"truncated gzip", "t.csv.gz", gz[:len(gz)-9], "t.csv.gz: the gzip data ends too early: the file is truncated"},
		{"truncated zstd", "t.csv.zst", zst[:len(zst)-3], "t.csv.zst: the zstd data ends too early: the file is truncated"},
		{"an archive", "t.jsonl", "PK\x03\x04", "t.jsonl: found a ZIP archive, expected one of .jsonl"},
		{"truncated array", "t.json", `[{"text": "a"}, {"te`, "t.json: not valid JSON: it ends within element 2 of the array: the file is truncated"},
		{"bad array", "t.json", `[{"text": "a"}, {"te": x}]`, "t.json: not valid JSON in element 2, before byte"},
		{"after the array", "t.json", `[{"text": "a"}] 7`, "t.json: found more after the array"},
		{"not an object", "t.json", `[{"text": "a"}, 7]`, "t.json: row 2: found a number, expected a JSON object"},
		{"mixed", "t.json", `[{"text": "a"}, {"prompt": "a", "completion": "b"}]`, "t.json: row 2: found prompt and completion, expected text as in row 1"},
		{"an unknown role", "t.jsonl", `{"conversations": [{"from": "humn", "value": "x"}]}`, `t.jsonl:1: conversations[0].from: found "humn", expected assistant`},
		{"two user turns", "t.jsonl", `{"conversations": [{"from": "human", "value": "x"}, {"from": "human", "value": "y"}]}`, "t.jsonl:1: conversations[1]: found a message of the user after one of the user, expected an answer (gpt) between two messages of the user"},
		{"an answer first", "t.jsonl", `{"conversations": [{"from": "gpt", "value": "x"}]}`, "conversations[0]: found a message of the assistant after none, expected a message of the user (human) first"},
		{"a late system message", "t.jsonl", `{"conversations": [{"from": "human", "value": "x"}, {"from": "system", "value": "x"}]}`, "conversations[1]: found a message of the system after one of the user, expected the system message first"},
		{"no call", "t.jsonl", `{"conversations": [{"from": "human", "value": "x"}, {"from": "observation", "value": "x"}]}`, "expected a call (function_call) before the result"},
		{"a bad call", "t.jsonl", `{"conversations": [{"from": "human", "value": "x"}, {"from": "function_call", "value": "x"}]}`, `conversations[1].value: found "x", expected a JSON object with name and arguments of the call`},
		{"no value", "t.jsonl", `{"conversations": [{"from": "human", "text": "x"}]}`, "conversations[0]: no value, expected from and value"},
		{"two formats", "t.csv", "text,instruction,output\nx,y,z\n", `t.csv:2: found ["text" "instruction" "output"], expected one kind of row: they fit text (text) and alpaca (instruction → output); for text add data.ignore_columns: [instruction, output]`},
		{"context", "t.csv", "question,answer,context\nx,y,z\n", `t.csv:2: context: found text beside question/answer, which would be ignored: leave it out with data.ignore_columns: [context], or name the columns with data.columns`},
		{"two answers", "t.csv", "instruction,output,response\nx,y,z\n", "t.csv:2: response: found text beside alpaca, which would be ignored"},
		{"input and completion", "t.csv", "prompt,completion,input\nx,y,z\n", "t.csv:2: input: found text beside prompt and completion, which would be ignored"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.file, c.content, Options{})
			require.Error(t, err)
			path := err.Error()
			assert.Contains(t, path, c.text)
			assert.NotContains(t, path, "\n")
		})
	}
}

// TestColumns: columns are renamed and left out before the format is detected.
func TestColumns(t *testing.T) {
	const table = "ask,reply,text\nx,y,z\n"
	d, err := load(t, "t.csv", table, Options{Columns: map[string]string{"prompt": "ask", "completion": "reply"}, IgnoreColumns: []string{"text"}})
	require.NoError(t, err)
	assert.Equal(t, idsOf("xy", eos), d.Row(0).IDs)
	assert.Equal(t, []string{"prompt and completion, 1 row of t.csv: prompt → completion"}, d.Report())

	d, err = load(t, "t.csv", "text,label\nx,y\n", Options{Columns: map[string]string{"question": "text", "answer": "label"}})
	require.NoError(t, err)
	assert.Equal(t, idsOf("u:x;a:y;"), d.Row(0).IDs)

	d, err = load(t, "t.csv", "prompt,completion\nx,y\n", Options{Columns: map[string]string{"prompt": "completion", "completion": "prompt"}})
	require.NoError(t, err, "exchanged")
	assert.Equal(t, idsOf("yx", eos), d.Row(0).IDs)

	_, err = load(t, "t.csv", table, Options{Columns: map[string]string{"prompt": "asks", "completion": "reply"}})
	assert.ErrorContains(t, err, `t.csv:2: found ["ask" "reply" "text"], expected "asks" too, which columns maps to prompt, did you mean "ask"?`)
	_, err = load(t, "t.csv", "prompt,ask,reply\nx,y,z\n", Options{Columns: map[string]string{"prompt": "ask", "completion": "reply"}})
	assert.ErrorContains(t, err, `found the column "prompt" beside "ask", which columns maps to it: leave it out with ignore_columns: [prompt]`)
}

// TestLayouts: what a layout adds to a conversation is in its messages.
func TestLayouts(t *testing.T) {
	for _, c := range []struct{ name, row, want string }{
		{"alpaca with history", `{"instruction": "c", "input": "", "output": "d", "history": [["a", "b"]]}`, "u:a;a:b;u:c;a:d;"},
		{"Dolly", `{"instruction": "c", "context": "i", "response": "d", "category": "qa"}`, "u:c\ni;a:d;"},
		{"OpenOrca", `{"id": 1, "system_prompt": "", "question": "c", "response": "d"}`, "u:c;a:d;"},
		{"role and content", `{"conversations": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}`, "u:x;a:y;"},
		{"in text", `{"conversations": "[{\"from\": \"human\", \"value\": \"x\"}, {\"from\": \"gpt\", \"value\": \"y\"}]"}`, "u:x;a:y;"},
		{"tools in text", `{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "tools": "[{}]"}`, "TTTTu:x;a:y;"},
	} {
		d, err := load(t, "t.jsonl", c.row, Options{})
		require.NoError(t, err, c.name)
		assert.Equal(t, idsOf(c.want), d.Row(0).IDs, c.name)
	}
	r, err := encoder{}.parse([]byte(`{"system": "s", "tools": "", "conversations": [{"from": "human", "value": "x"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"}, {"from": "observation", "value": "3"}, {"from": "gpt", "value": "y", "weight": 0}]}`), false)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"role": "system", "content": "s"}, {"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}, {"role": "tool", "content": "3"}, {"role": "assistant", "content": "y"}]`, string(r.conversation.Messages))
	assert.Equal(t, []int{4}, r.conversation.Silent)
	assert.Nil(t, r.conversation.Tools)

	path := filepath.Join(t.TempDir(), "t.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"question": "x", "answer": "y"}`), 0o600))
	_, err = Load(t.Context(), []string{path}, Options{Tokenizer: byteTokenizer{}})
	assert.ErrorContains(t, err, "t.jsonl:1: question/answer rows need a chat template, and the tokenizer has none: name one with chat_template (chatml, gemma, llama3, mistral, or a file)")
}

// TestLabelledTables: labels of tables are numbers where they look like numbers.
func TestLabelledTables(t *testing.T) {
	o := Options{Rows: LabelledRows, Texts: framed{}}
	a, err := load(t, "t.csv", "text,label\nx,1\ny,0\n", o)
	require.NoError(t, err)
	b, err := load(t, "t.jsonl", `{"text": "x", "label": 1}`+"\n"+`{"text": "y", "label": 0}`, o)
	require.NoError(t, err)
	assert.Equal(t, b.Digest(), a.Digest())
	_, err = load(t, "t.csv", "text,label\nx,1\ny,no\n", o)
	assert.ErrorContains(t, err, "t.csv:3: label: found names of classes, expected ids of classes as in")
}

// fuzzFormat reads arbitrary bytes as a file: each gives rows or a one-line error.
func fuzzFormat(f *testing.F, format *fileFormat) {
	for _, c := range contents {
		for _, write := range containers {
			f.Add(write(f, c))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "rows")
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		in, err := (&Options{}).input(path)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		defer in.Close()
		err = format.rows(in, func(object []byte, number int) error {
			require.Positive(t, number)
			if format != &jsonLines && format != &jsonArray {
				require.True(t, json.Valid(object), "%q", object)
			}
			_, err := encoder{}.parse(object, format.textual)
			if err != nil {
				require.NotContains(t, err.Error(), "\n")
			}
			return nil
		})
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
		}
	})
}

func FuzzCSV(f *testing.F)     { fuzzFormat(f, &commaSeparated) }
func FuzzTSV(f *testing.F)     { fuzzFormat(f, &tabSeparated) }
func FuzzArray(f *testing.F)   { fuzzFormat(f, &jsonArray) }
func FuzzLines(f *testing.F)   { fuzzFormat(f, &jsonLines) }
func FuzzParquet(f *testing.F) { fuzzFormat(f, &parquetFile) }

// FuzzInput reads arbitrary bytes as a compressed file of any format.
func FuzzInput(f *testing.F) {
	for _, wrap := range wrappers {
		f.Add(wrap(f, []byte(`{"text": "ab"}`)), "t.jsonl")
		f.Add(wrap(f, []byte("text\nab\n")), "t.csv.gz")
	}
	f.Fuzz(func(t *testing.T, raw []byte, name string) {
		if !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, "/\\\x00\n") || len(name) > 100 {
			return
		}
		_, err := load(t, filepath.Base(name), string(raw), Options{MaxLength: 8})
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
		}
	})
}

// TestParquetMemory: a damaged length of the index is an error before memory is allocated for it.
func TestParquetMemory(t *testing.T) {
	raw := contents[2].parquet(t)
	raw[len(raw)-5] = 0x7f
	before, after := runtime.MemStats{}, runtime.MemStats{}
	runtime.ReadMemStats(&before)
	_, err := load(t, "t.parquet", string(raw), Options{})
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "t.parquet: not a valid Parquet file: found an index of 21307")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}
