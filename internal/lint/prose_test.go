package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxSuspicious is the maximum number of suspicious sentences per 100 in a top-level folder.
// One in a folder with few sentences is allowed.
const maxSuspicious = 6

// sentence is a sentence of a comment, a document, or a help or error text.
type sentence struct {
	at, text string
	kind     string // of the declaration: func, type, or another
	name     string // of the declaration; the sentence opens its doc comment
}

// phrase is a construction with a plainer equivalent. A sentence without any of its words is not searched.
type phrase struct {
	rule    string
	words   []string
	pattern *regexp.Regexp
}

// newPhrase compiles a pattern, which matches lower case outside of code and quotations.
func newPhrase(rule, words, pattern string) phrase {
	return phrase{rule, strings.Split(words, "|"), regexp.MustCompile(`\b(?:` + pattern + `)`)}
}

var phrases = []phrase{
	newPhrase("that there are", " there", `(?:that|which|what|those) there (?:is|are|was|were|may be)\b`),
	newPhrase("so many", "so m|so o|so often", `so (?:many|much|often)\b`),
	newPhrase("those of", "those", `those (?:of|that|which|in|with|who|whose|for|from|on|at)\b`),
	newPhrase("of which", " which| whom", `(?:of|behind|by|with|from) (?:which|whom)\b`),
	newPhrase("of what", " what", `(?:of|by|with|to|for|beside|behind|from|than|and|or|but|into|on) what\b`),
	newPhrase("where there is", "where", `where (?:there (?:is|are) (?:none|nothing|nobody|some|any|one)\b|(?:it|they|one|some|none|nothing|nobody) )`),
	newPhrase("beside, behind", "beside|behind", `beside\b|behind (?:it|them|the|that|those|each|what|a|an)\b`),
	newPhrase("one behind the other", "the other", `one (?:behind|beside) the other\b`),
	newPhrase("but for", "but ", `but (?:for|those|that of|what|not what)\b`),
	newPhrase("in the place of", "place|take|give|gives", `in(?:to)? the place of|takes? (?:its|their|the other's) places?|(?:takes? turns|gives? way)\b`),
	newPhrase("goes on", "go|went", `(?:goes?|going|gone|went) on\b|goes? without\b`),
	newPhrase("lies, stands", "lie|lay|lying|stand", `(?:lies|lie|lay|lying)\b|stands? (?:for|in|there|behind|on|beside|apart)\b`),
	newPhrase("is to be", " to ", `(?:is|are|was|were) to (?:be|have|come|go|hear)\b`),
	newPhrase("is there", " there", `(?:is|are|was|were|be) (?:there|not there)\b`),
	newPhrase("as it is", "as it|as they", `as (?:it|they) (?:is|are|was|were|lies?|lay|stands?|stood|has|have|had|gives?|says?|does|do|goes)\b`),
	newPhrase("brings, puts", "bring|brought|puts", `(?:brings?|brought|bringing)\b|puts (?:a|an|the|it|them|what|one|that|more|something|others?|some|rounds?)\b`),
	newPhrase("whoever, meanwhile", "whoever|nobody|wherever|meanwhile|one who", `(?:whoever|nobody|wherever|meanwhile|one who)\b`),
	newPhrase("made of", "made|bec|came", `(?:is|are|was|were|be|what) (?:made|become|becomes|came) of\b|made (?:anew|ahead)\b`),
	newPhrase("any more, from now on", "more| on", `any more\b|no more (?:\w+ )?(?:is|are|comes?|runs?)\b|from (?:then|now|there) on\b`),
	newPhrase("as often as", "as often|as far|as soon", `as often as|as far as|as soon as that\b`),
	newPhrase("home-made word", "stretch|company|twin|leash|seat|wish|door|flight", `(?:stretch(?:es)?|company|twins?|leash|seats?|wishes to|wish of|door|flights?)\b`),
}

// idioms are removed before phrases are searched.
var idioms = regexp.MustCompile(`every so (?:many|often)|so (?:many|much|often)(?: \w+)?,? (?:that|as)\b|(?:both|each|all|some|most|one) of (?:which|whom)|` +
	`behind (?:the|a|an) (?:scenes|proxy|firewall|lock)|but for non|goes? on to\b|lies? (?:about|in memory)|(?:is|are) there (?:a|an|any|no)\b|as (?:it|they) (?:is|are) already|any more [a-z]+s\b`)

var (
	quoted    = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|\\[[^\\]]*\\]\\([^)]*\\)")
	wordOf    = regexp.MustCompile(`[\p{L}\p{N}_'’/.·-]+`)
	relative  = map[string]bool{"that": true, "which": true, "whose": true, "whom": true, "who": true, "what": true, "where": true, "whatever": true, "whoever": true}
	opening   = regexp.MustCompile(`^(?:What|Whoever|Who|Whose|Those|Beside|Behind|But for|Of|Where)\b`)
	opens     = regexp.MustCompile(`^(?:Of course|Where (?:possible|appropriate|applicable|needed|necessary))\b`)
	pronoun   = regexp.MustCompile(`^(?:(?:\w+ (?:(?:for|to|of|with|in|from|by|on|as|up|down|out) )?)?(?:it|them|those|theirs|what|whatever|nothing|nobody|others|one of|all that|that (?:of|which|with|for|in))\b|(?:is|are|was|were) (?:its|their)\b)`)
	isWhat    = regexp.MustCompile(`^(?:is|are|says?|tells?|shows?|gives?|notes?|means?) (?:what|how|where|who|which|why|whose|when|that|in what)\b`)
	copula    = regexp.MustCompile(`^(?:is|are) `)
	copulaFor = regexp.MustCompile(`^(?:is|are) (?:like|equivalent|the same|called|used|similar|identical|safe|implemented|intended|analogous|shorthand|deprecated|not |for |run |set |the inverse|a (?:helper|shorthand|convenience|variant|wrapper|no-op)|an alias)`)
	oddVerb   = regexp.MustCompile(`^(?:gives?|says?|tells?|puts?|brings?|begins?|settles?|has|have|goes|go|lays?|lends?|asks?|looks?|leaves?|names?|hears?|notes?|takes?) `)
	formula   = regexp.MustCompile(`[=·Σ∂√²×ᵀ]|\w [+−] \w`)
	article   = regexp.MustCompile(`^(?:An?|The) `)
	afterName = regexp.MustCompile(`^\]?[:,]? ?(?:(?:and|or) \w+ )?`)
	unprose   = regexp.MustCompile(`Copyright|Code generated|LICENSE|Deprecated:|^\s*(?:Unordered )?[Oo]utput:`)
	codeLine  = regexp.MustCompile(`^ ?\t|^   +|^\s*#`)
	listItem  = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
)

// suspicious returns the rules that a sentence breaks.
func suspicious(s sentence) (rules []string) {
	add := func(broken bool, rule string) {
		if broken {
			rules = append(rules, rule)
		}
	}
	plain := s.text
	if strings.ContainsAny(plain, "`\"[") {
		plain = quoted.ReplaceAllString(plain, "X")
	}
	rest, named := strings.CutPrefix(strings.TrimPrefix(article.ReplaceAllString(s.text, ""), "["), s.name)
	if named = named && s.name != "" && !wordOf.MatchString(rest[:min(1, len(rest))]); named {
		rest = rest[len(afterName.FindString(rest)):]
		add(pronoun.MatchString(rest), "pronoun before noun")
		add(isWhat.MatchString(rest), "is what")
		if s.kind == "func" && !formula.MatchString(rest) {
			add(copula.MatchString(rest) && !copulaFor.MatchString(rest), "function without verb")
			add(oddVerb.MatchString(rest), "odd verb")
		}
	} else if s.name != "" {
		add(ast.IsExported(s.name) && (s.kind == "func" || s.kind == "type") && !strings.Contains(s.text, "."+s.name), "no name first")
	}
	relatives := 0
	for _, w := range strings.FieldsFunc(plain, func(c rune) bool { return c == ' ' || c == ',' || c == ';' || c == '(' }) {
		if relatives++; !relative[strings.TrimRight(w, ".:)!?")] {
			relatives--
		}
	}
	add(s.name != "" && relatives > 0 && len(wordOf.FindAllString(plain, 26)) > 25, "long first sentence")
	add(relatives > 1 && strings.Count(plain, ",") > 2, "tangled")
	add(!named && opening.MatchString(s.text) && !opens.MatchString(s.text) && !strings.HasSuffix(s.text, "?"), "clause before noun")
	lower := strings.ToLower(plain)
	for _, p := range phrases {
		if slices.ContainsFunc(p.words, func(w string) bool { return strings.Contains(lower, w) }) {
			add(p.pattern.MatchString(idioms.ReplaceAllString(lower, "X")), p.rule)
		}
	}
	return rules
}

// sentences splits a paragraph into sentences of words.
func sentences(text string) (all []string) {
	text = strings.Join(strings.Fields(text), " ")
	for start, i := 0, 0; i < len(text); i++ {
		end := i == len(text)-1
		if !end && !(strings.ContainsRune(".!?", rune(text[i])) && text[i+1] == ' ') {
			continue
		}
		s := strings.TrimSpace(text[start : i+1])
		word := s[strings.LastIndexByte(s, ' ')+1:]
		if !end && slices.Contains([]string{"e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "Fig.", "Sec.", "No."}, word) {
			continue
		}
		if start = i + 1; strings.ContainsFunc(s, func(c rune) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }) {
			all = append(all, s)
		}
	}
	return all
}

// comments returns the sentences of the comments of a Go file.
func (f *source) comments(r *repo) (all []sentence) {
	type declared struct{ kind, name string }
	docs := map[*ast.CommentGroup]declared{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			docs[n.Doc] = declared{"func", n.Name.Name}
		case *ast.GenDecl:
			if !n.Lparen.IsValid() {
				switch s := n.Specs[0].(type) {
				case *ast.TypeSpec:
					docs[n.Doc] = declared{"type", s.Name.Name}
				case *ast.ValueSpec:
					docs[n.Doc] = declared{"value", s.Names[0].Name}
				}
			}
		case *ast.Field:
			if len(n.Names) > 0 {
				docs[n.Doc] = declared{"member", n.Names[0].Name}
			}
		}
		return true
	})
	for _, group := range f.ast.Comments {
		var lines []string
		for _, c := range group.List {
			if !strings.HasPrefix(c.Text, "//go:") {
				lines = append(lines, strings.TrimPrefix(c.Text, "//"))
			}
		}
		doc := docs[group]
		if text := strings.Join(lines, "\n"); unprose.MatchString(text) {
			continue
		}
		lines = slices.DeleteFunc(lines, codeLine.MatchString)
		for paragraph := range strings.SplitSeq(strings.Join(lines, "\n"), "\n\n") {
			for _, s := range sentences(paragraph) {
				all = append(all, sentence{r.at(group.Pos()), s, doc.kind, doc.name})
				doc = declared{}
			}
		}
	}
	return all
}

// usageTexts returns the sentences of help and error texts of a Go file.
func (f *source) usageTexts(r *repo) (all []sentence) {
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			for _, s := range sentences(text) {
				if len(wordOf.FindAllString(s, 3)) == 3 {
					all = append(all, sentence{at: r.at(lit.Pos()), text: s})
				}
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Short" || key.Name == "Long") {
				add(n.Value)
			}
		case *ast.CallExpr:
			name := ""
			switch fun := n.Fun.(type) {
			case *ast.SelectorExpr:
				name = fun.Sel.Name
				if x, ok := fun.X.(*ast.Ident); name == "New" && ok && x.Name == "errors" {
					name = "Errorf"
				}
			case *ast.Ident:
				name = fun.Name
			}
			if name == "Errorf" || name == "usagef" || strings.Contains(name, "Var") {
				for _, arg := range n.Args {
					add(arg)
				}
			}
		}
		return true
	})
	return all
}

// document returns the sentences of a Markdown text: paragraphs, list items and table cells.
func document(name, text string) (all []sentence) {
	var paragraph []string
	start, code := 0, false
	add := func(line int, text string, least int) {
		for _, s := range sentences(text) {
			if len(wordOf.FindAllString(s, least)) == least {
				all = append(all, sentence{at: fmt.Sprintf("%s:%d", name, line), text: s})
			}
		}
	}
	for i, line := range append(strings.Split(text, "\n"), "") {
		bare := strings.TrimSpace(line)
		fence, table := strings.HasPrefix(bare, "```"), strings.HasPrefix(bare, "|")
		if code = code != fence; code || fence || table || bare == "" || bare[0] == '#' || listItem.MatchString(line) {
			add(start, strings.Join(paragraph, " "), 1)
			paragraph = nil
		}
		switch {
		case code || fence || bare == "" || bare[0] == '#':
		case table:
			for cell := range strings.SplitSeq(strings.Trim(bare, "|"), "|") {
				add(i+1, cell, 4)
			}
		default:
			if paragraph == nil {
				start = i + 1
			}
			paragraph = append(paragraph, listItem.ReplaceAllString(line, ""))
		}
	}
	return all
}

// prose returns the number of sentences and the suspicious ones for each top-level folder and each
// folder of internal. Comments in other languages than Go are counted apart.
func (r *repo) prose() (totals map[string]int, found map[string][]string) {
	totals, found = map[string]int{}, map[string][]string{}
	count := func(file, language string, all []sentence) {
		parts := strings.Split(file, "/")
		folder := strings.Join(parts[:min(len(parts)-1, 1)], "/")
		if folder == "internal" && len(parts) > 2 {
			folder = path.Join(parts[0], parts[1])
		}
		folder += language
		for _, s := range all {
			totals[folder]++
			if rules := suspicious(s); rules != nil {
				slices.Sort(rules)
				found[folder] = append(found[folder], fmt.Sprintf("%s: %s: %s", s.at, strings.Join(rules, ", "), s.text))
			}
		}
	}
	for _, f := range r.files {
		if !f.test && !f.generated {
			count(f.path, "", f.comments(r))
			count(f.path, "", f.usageTexts(r))
		}
	}
	for _, name := range r.texts {
		if path.Ext(name) == ".md" && !strings.Contains(name, "testdata/") {
			if raw, err := fs.ReadFile(r.fsys, name); err == nil {
				count(name, "", document(name, string(raw)))
			}
		}
	}
	for _, name := range r.codeFiles() {
		if raw, err := fs.ReadFile(r.fsys, name); err == nil && !strings.Contains(string(raw[:min(len(raw), 600)]), "generated by") {
			count(name, " (other languages)", codeSentences(name, string(raw)))
		}
	}
	return totals, found
}

// Texts are plain English: the noun comes first, functions have verbs, and terms are those of the field.
func TestProse(t *testing.T) {
	totals, found := theRepo(t).prose()
	require.Greater(t, totals["docs"], 1000)
	for folder, list := range found {
		if testing.Verbose() {
			t.Logf("%q: %d of %d sentences", folder, len(list), totals[folder])
		}
		if len(list) > max(1, totals[folder]*maxSuspicious/100) {
			t.Errorf("%q: %d of %d sentences are suspicious, at most %d per 100 may be:\n%s", folder, len(list), totals[folder], maxSuspicious, strings.Join(list, "\n"))
		}
	}
}

// Each rule finds its example, and plain sentences break none.
func TestProseRules(t *testing.T) {
	for text, want := range map[string][]string{
		"func load: load loads the weights.":                       nil,
		"func load: load is the weights.":                          {"function without verb"},
		"func load: load gives a value.":                           {"odd verb"},
		"func load: load returns them.":                            {"pronoun before noun"},
		"type T: T is what a run gives.":                           {"is what", "pronoun before noun"},
		"type T: A T holds weights.":                               nil,
		"type T: Holds weights.":                                   {"no name first"},
		"Where nobody waits, it goes on.":                          {"clause before noun", "goes on", "where there is", "whoever, meanwhile"},
		"The cache holds the prompts of all clients.":              nil,
		"Weights lie in the file as it is.":                        {"as it is", "lies, stands"},
		"There are so many rows that it overflows.":                nil,
		"It takes so many rows.":                                   {"so many"},
		"One who asks, which is rare, gets what comes, or others.": {"tangled", "whoever, meanwhile"},
	} {
		s := sentence{text: text}
		if decl, doc, ok := strings.Cut(text, ": "); ok {
			s.kind, s.name, _ = strings.Cut(decl, " ")
			s.text = doc
		}
		got := suspicious(s)
		slices.Sort(got)
		require.Equal(t, want, got, text)
	}
	require.Equal(t, []string{"One, e.g. two.", "Three `a.b`?"}, sentences("One, e.g. two.\nThree `a.b`?"))
}
