package data

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// layout is a way to spread a row of language over columns. A file declares each, and layouts lists them.
type layout struct {
	kind    kind
	columns []column
	arrow   string // between the last column and those before it in reports, or empty
	parse   func(c columns) (record, error)
	// content is set if columns that usually hold content are errors when the layout does not read them.
	content bool
}

// column is a column of a layout.
type column struct {
	names    []string // a row has one of them
	optional bool
}

// layouts lists the layouts of rows of language.
var layouts = []*layout{&plainText, &completions, &chatMessages, &alpaca, &shareGPT, &questionAnswer, &queryResponse, &inputOutput, &promptResponse}

// columns are the columns of a row that a layout reads, with an empty name and nil for a column that the row lacks.
type columns struct {
	layout *layout
	names  []string
	values []json.RawMessage
}

// used returns the names of the columns that have values, "" for the others.
func (c columns) used() []string {
	names := slices.Clone(c.names)
	for i, col := range c.layout.columns {
		if col.optional && !c.has(i) {
			names[i] = ""
		}
	}
	return names
}

// has reports whether the row has a value other than null in column i.
func (c columns) has(i int) bool { return c.names[i] != "" && !saysNothing(c.values[i]) }

// text returns the text of column i.
func (c columns) text(i int) (string, error) { return textValue(c.names[i], c.values[i]) }

// optional returns the text of column i, or "" for null.
func (c columns) optional(i int) (string, error) {
	if !c.has(i) {
		return "", nil
	}
	return c.text(i)
}

// textValue returns the text in a value of a key.
func textValue(key string, raw json.RawMessage) (string, error) {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", problem(ErrFormat, "%s: found %s, expected text", key, describe(raw))
	}
	return *s, nil
}

// match returns the columns of a row if it has all that the layout requires.
func (l *layout) match(fields map[string]json.RawMessage) (columns, bool) {
	c := columns{layout: l, names: make([]string, len(l.columns)), values: make([]json.RawMessage, len(l.columns))}
	for i, col := range l.columns {
		for _, name := range col.names {
			if raw, has := fields[name]; has && c.names[i] == "" {
				c.names[i], c.values[i] = name, raw
			}
		}
		if c.names[i] == "" && !col.optional {
			return c, false
		}
	}
	return c, true
}

// covers reports whether c reads all columns that other reads.
func (c columns) covers(other columns) bool {
	return !slices.ContainsFunc(other.names, func(name string) bool { return name != "" && !slices.Contains(c.names, name) })
}

// contentKeys are the keys that usually hold content. A layout that reads other columns refuses them.
var contentKeys = []string{"text", "prompt", "completion", "messages", "conversations", "conversation", "instruction", "input", "context", "output", "response", "question", "answer", "query", "history"}

// parseLanguage parses a row of language by the layout that its columns fit.
func parseLanguage(fields map[string]json.RawMessage, keys []string) (record, error) {
	var fits []columns
	for _, l := range layouts {
		c, ok := l.match(fields)
		if !ok || slices.ContainsFunc(fits, func(other columns) bool { return other.covers(c) }) {
			continue
		}
		fits = append(slices.DeleteFunc(fits, func(other columns) bool { return c.covers(other) }), c)
	}
	switch len(fits) {
	case 0:
		return record{}, fitsNone(fields, keys)
	case 1:
	default:
		return record{}, fitsSeveral(fits, keys)
	}
	c := fits[0]
	if err := c.refuseOthers(fields, keys); err != nil {
		return record{}, err
	}
	r, err := c.layout.parse(c)
	if r.kind == "" {
		r.kind = c.layout.kind
	}
	r.read = &c
	return r, err
}

// refuseOthers returns an error for a column that the layout does not read and that changes what is learned.
func (c columns) refuseOthers(fields map[string]json.RawMessage, keys []string) error {
	for _, key := range keys {
		if slices.Contains(c.names, key) || saysNothing(fields[key]) {
			continue
		}
		_, known := kinds[key]
		advice, ok := meaningful[key]
		if !ok {
			advice, ok = adviceByKind[c.layout.kind][key]
		}
		switch {
		case known:
			return problem(ErrKeys, "found %q beside %s, expected one kind of row: choose with data.ignore_columns: [%s]", key, c.layout.kind, key)
		case ok:
			return problem(ErrIgnored, "%s: found %s beside %s, which would be ignored: %s", key, describe(fields[key]), c.layout.kind, advice)
		case c.layout.content && slices.Contains(contentKeys, key):
			return problem(ErrIgnored, "%s: found %s beside %s, which would be ignored: leave it out with data.ignore_columns: [%s], or name the columns with data.columns", key, describe(fields[key]), c.layout.kind, key)
		}
	}
	return nil
}

// fitsSeveral returns the error for columns that fit several layouts.
func fitsSeveral(fits []columns, keys []string) error {
	var each []string
	for _, c := range fits {
		each = append(each, fmt.Sprintf("%s (%s)", c.layout.kind, c.layout.joinColumns(c.used())))
	}
	var drop []string
	for _, name := range fits[1].names {
		if name != "" && !slices.Contains(fits[0].names, name) {
			drop = append(drop, name)
		}
	}
	return problem(ErrKeys, "%s, expected one kind of row: they fit %s; for %s add data.ignore_columns: [%s]",
		listKeys(keys), strings.Join(each, " and "), fits[0].layout.kind, strings.Join(drop, ", "))
}

// fitsNone returns the error for columns that fit no layout, with the layouts that they resemble.
func fitsNone(fields map[string]json.RawMessage, keys []string) error {
	for _, key := range keys {
		if hint := taskHints[key]; hint != "" {
			return problem(ErrKeys, "%s, expected %s (%s)", listKeys(keys), languageKeys(), hint)
		}
	}
	var near *layout
	most := 0
	for _, l := range layouts {
		n := 0
		for _, col := range l.columns {
			if !col.optional && slices.ContainsFunc(col.names, func(name string) bool { return fields[name] != nil }) {
				n++
			}
		}
		if n > most {
			near, most = l, n
		}
	}
	if slices.ContainsFunc(keys, isSentence) {
		return problem(ErrKeys, "%s as the names of columns, expected %s: if this is a row, put a line with the names of its columns before it", listKeys(keys), languageKeys())
	}
	if near == nil {
		return problem(ErrKeys, "%s, expected %s%s", listKeys(keys), languageKeys(), mapping(keys, layouts[0], fields))
	}
	var missing []string
	for _, col := range near.columns {
		if !col.optional && !slices.ContainsFunc(col.names, func(name string) bool { return fields[name] != nil }) {
			missing = append(missing, fmt.Sprintf("%q", col.names[0]))
		}
	}
	return problem(ErrKeys, "%s, expected %s too as in %s%s", listKeys(keys), strings.Join(missing, " and "), near.kind, mapping(keys, near, fields))
}

// isSentence reports whether the name of a column looks like a text, as in a table without a header.
func isSentence(name string) bool {
	return strings.Count(name, " ") > 3 || strings.Contains(name, " ") && strings.ContainsAny(name[len(name)-1:], ".?!")
}

// taskHints maps keys of other tasks to advice.
var taskHints = map[string]string{
	"anchor":               "pairs are learned with task: embedding",
	"chosen":               "preferences are learned with task: preference",
	"rejected":             "preferences are learned with task: preference",
	"preferred_output":     "preferences are learned with task: preference",
	"non_preferred_output": "preferences are learned with task: preference",
}

// languageKeys lists the layouts for error messages.
func languageKeys() string {
	var each []string
	for _, l := range layouts {
		var names []string
		for _, col := range l.columns {
			if !col.optional {
				names = append(names, col.names[0])
			}
		}
		each = append(each, strings.Join(names, " and "))
	}
	return suggest.Or(each)
}

// mapping returns a line for the configuration that names the columns for the ones that a layout lacks.
func mapping(keys []string, near *layout, fields map[string]json.RawMessage) string {
	var free []string
	for _, key := range keys {
		if raw := fields[key]; len(raw) > 0 && raw[0] == '"' && meaningful[key] == "" && !slices.Contains(contentKeys, key) {
			free = append(free, key)
		}
	}
	want := near
	if near == &plainText && len(free) > 1 {
		want = &completions
	}
	var pairs []string
	for _, col := range want.columns {
		if col.optional || len(free) == 0 || slices.ContainsFunc(col.names, func(name string) bool { return fields[name] != nil }) {
			continue
		}
		best := 0
		for i, key := range free {
			if suggest.DidYouMean(key, col.names) != "" {
				best = i
				break
			}
		}
		pairs = append(pairs, col.names[0]+": "+free[best])
		free = slices.Delete(free, best, best+1)
	}
	if len(pairs) == 0 {
		return ""
	}
	return fmt.Sprintf("; map other names with data.columns, such as {%s}", strings.Join(pairs, ", "))
}

// joinColumns describes columns: instruction + input → output.
func (l *layout) joinColumns(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
	if l.arrow == "" || len(names) < 2 {
		return strings.Join(names, " + ")
	}
	return strings.Join(names[:len(names)-1], " + ") + " " + l.arrow + " " + names[len(names)-1]
}

// LanguageColumns lists the names that columns of rows may have, for data.columns.
func LanguageColumns() []string {
	names := map[string]bool{"text_pair": true, "label": true, "anchor": true, "positive": true, "negative": true, "chosen": true, "rejected": true}
	for _, l := range layouts {
		for _, col := range l.columns {
			for _, name := range col.names {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
