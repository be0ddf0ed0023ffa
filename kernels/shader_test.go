package kernels

import (
	"fmt"
	"go/constant"
	gotoken "go/token"
	"go/types"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// shader is a file of kernels/metal or kernels/shared as a compiler sees it, in one of its forms: the words
// that are left when the macros are gone, and what is declared in them.
type shader struct {
	words []string
	match []int // of an opening bracket: where it is closed
	types map[string]bool
	sizes map[string]int   // of types, in bytes, where they are known
	enums map[string]int64 // values of enumerators, by name and by type::name
	fixed map[string]bool  // other names that arrays may be sized by: values of templates
	funcs []shaderFunc
	loose []string // what is declared outside of functions and must not be
}

// shaderFunc is a function: its words are those of its header, from on, those of its
// parameters and those of its body, braces included.
type shaderFunc struct {
	owner, name                      string
	from, params, params1, body, end int
	kernel                           bool
}

// readShader expands a file with LF_SIMD and LF_BFLOAT defined to be simd and bfloat.
func readShader(root fs.FS, file, simd, bfloat string) (*shader, error) {
	p := &preprocessor{folders: folders{root, "metal"}, macros: map[string]*macro{}, defined: map[string]bool{}}
	p.macros["LF_SIMD"], p.macros["LF_BFLOAT"] = &macro{body: []string{simd}}, &macro{body: []string{bfloat}}
	if err := p.file(file); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	words, err := p.expand(tokens(p.text.String()), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s := &shader{types: map[string]bool{"void": true}, sizes: map[string]int{}, enums: map[string]int64{}, fixed: map[string]bool{}}
	s.words = whole(slices.DeleteFunc(words, func(t string) bool { return strings.TrimSpace(t) == "" }))
	for name, size := range map[string]int{"bool": 1, "char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2, "bfloat": 2, "int": 4, "uint": 4, "unsigned": 4, "float": 4, "long": 8, "ulong": 8, "size_t": 8} {
		s.types[name], s.sizes[name] = true, size
		for n, room := range map[string]int{"2": 2, "3": 4, "4": 4} {
			s.types[name+n], s.sizes[name+n] = true, size*room
		}
	}
	if s.match, err = brackets(s.words); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s.declared()
	s.scope(0, len(s.words), "")
	return s, nil
}

var number = regexp.MustCompile(`^\d`)

// whole puts together what the words of the preprocessor split: "::", "&&", and the
// numbers with a sign in the exponent or a point in front.
func whole(words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		if (w == ":" || w == "&") && i+1 < len(words) && words[i+1] == w {
			out = append(out, w+w)
			i++
			continue
		}
		if w == "." && i+1 < len(words) && number.MatchString(words[i+1]) {
			i++
			w += words[i]
		}
		lower := strings.ToLower(w)
		exponent := strings.HasSuffix(lower, "e") && !strings.HasPrefix(lower, "0x") || strings.HasSuffix(lower, "p") && strings.HasPrefix(lower, "0x")
		if strings.ContainsAny(w[:1], ".0123456789") && exponent && i+2 < len(words) && strings.Contains("+-", words[i+1]) {
			w += words[i+1] + words[i+2]
			i += 2
		}
		out = append(out, w)
	}
	return out
}

func brackets(words []string) ([]int, error) {
	match, open := make([]int, len(words)), []int{}
	for i, w := range words {
		switch w {
		case "(", "[", "{":
			open = append(open, i)
		case ")", "]", "}":
			if len(open) == 0 || words[open[len(open)-1]] != map[string]string{")": "(", "]": "[", "}": "{"}[w] {
				return nil, fmt.Errorf("%q closes nothing, before %q", w, strings.Join(words[i:min(len(words), i+8)], " "))
			}
			match[open[len(open)-1]] = i
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("%q is not closed", words[open[0]])
	}
	return match, nil
}

// declared finds the names of types, and those of the values of templates.
func (s *shader) declared() {
	for i, w := range s.words {
		switch w {
		case "struct", "class", "typename":
			if i+1 < len(s.words) && word.MatchString(s.words[i+1]) && (i+2 >= len(s.words) || s.words[i+2] != "::") {
				s.types[s.words[i+1]] = true
			}
		case "typedef":
			end := i + slices.Index(s.words[i:], ";")
			name := s.words[end-1]
			s.types[name] = true
			if size, ok := s.sizes[s.words[end-2]]; ok && end == i+3 {
				s.sizes[name] = size
			}
		case "template":
			if i+1 >= len(s.words) || s.words[i+1] != "<" {
				continue
			}
			for j := i + 2; j+1 < len(s.words) && s.words[j] != ">"; j++ {
				if _, ok := s.sizes[s.words[j]]; ok {
					s.fixed[s.words[j+1]] = true
				}
			}
		}
		if strings.HasPrefix(w, "simdgroup_") && (strings.HasSuffix(w, "8x8") || w == "simdgroup_matrix") {
			s.types[w] = true
		}
	}
}

// scope reads the declarations of a file, a namespace or, with an owner, of a struct.
func (s *shader) scope(from, to int, owner string) {
	start := from
	for i := from; i < to; i++ {
		switch s.words[i] {
		case "(", "[":
			i = s.match[i]
		case ";":
			s.variable(s.words[start:i], owner)
			start = i + 1
		case "{":
			header, end := s.words[start:i], s.match[i]
			switch {
			case slices.Contains(header, "="): // a value
			case slices.Contains(header, "enum"):
				s.enumerators(i+1, end, owner)
			case slices.Contains(header, "namespace"):
				s.scope(i+1, end, owner)
				start = end + 1
			case slices.Contains(header, ")"):
				s.function(start, i, end, owner)
				start = end + 1
			case slices.Contains(header, "struct"):
				at := slices.Index(header, "struct")
				if slices.Contains(header[at:], ":") {
					s.loose = append(s.loose, strings.Join(header[at:], " ")+": a struct derived from another (1.5.4)")
				}
				s.scope(i+1, end, header[at+1])
			}
			i = end
		}
	}
}

// variable looks at a statement outside of functions.
func (s *shader) variable(w []string, owner string) {
	isData := len(w) > 1 && (slices.Contains(w, "=") || !slices.Contains(w, "("))
	for _, other := range []string{"typedef", "using", "enum", "struct", "template", "static_assert"} {
		isData = isData && !slices.Contains(w, other)
	}
	switch text := strings.Join(w, " "); {
	case isData && owner == "" && !slices.Contains(w, "constant"):
		s.loose = append(s.loose, text+": a variable of the program that is not in constant memory (4.2)")
	case isData && owner != "" && (slices.Contains(w, "static") || slices.Contains(w, "constexpr")):
		s.loose = append(s.loose, text+": a static member of "+owner+": an enumerator says it in all versions (4.2)")
	}
}

func (s *shader) enumerators(from, to int, owner string) {
	next := int64(0)
	for _, item := range split(s.words[from:to]) {
		if len(item) > 2 {
			v, ok := s.value(item[2:], owner)
			if !ok {
				s.fixed[item[0]] = true
				continue
			}
			next = v
		}
		s.enums[item[0]], s.enums[owner+"::"+item[0]] = next, next
		next++
	}
}

// function notes a function whose header begins at start and whose body at open.
func (s *shader) function(start, open, end int, owner string) {
	last := open - 1
	for s.words[last] != ")" { // const
		last--
	}
	first := slices.Index(s.match[:last], last)
	f := shaderFunc{owner: owner, name: s.words[first-1], from: start, params: first + 1, params1: last, body: open, end: end}
	f.kernel = slices.Contains(s.words[start:first], "kernel")
	s.funcs = append(s.funcs, f)
}

// split separates words at the commas that are in no brackets.
func split(words []string) (items [][]string) {
	items, depth := [][]string{nil}, 0
	for _, w := range words {
		switch w {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		}
		if w == "," && depth == 0 {
			items = append(items, nil)
			continue
		}
		items[len(items)-1] = append(items[len(items)-1], w)
	}
	return slices.DeleteFunc(items, func(i []string) bool { return len(i) == 0 })
}

// value computes a constant expression.
func (s *shader) value(words []string, owner string) (int64, bool) {
	var b strings.Builder
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case word.MatchString(w):
			v, ok := s.enums[owner+"::"+w]
			if i+2 < len(words) && words[i+1] == "::" {
				v, ok = s.enums[w+"::"+words[i+2]]
				i += 2
			} else if !ok {
				v, ok = s.enums[w]
			}
			if !ok {
				return 0, false
			}
			fmt.Fprintf(&b, "(%d)", v)
		case number.MatchString(w):
			b.WriteString(strings.TrimRight(w, "uUlL"))
		default:
			b.WriteString(w)
		}
	}
	tv, err := types.Eval(gotoken.NewFileSet(), nil, gotoken.NoPos, b.String())
	if err != nil || tv.Value == nil {
		return 0, false
	}
	return constant.Int64Val(constant.ToInt(tv.Value))
}
