package kernels

import (
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Signature is a kernel's declaration in its source: the parameters that a backend must
// pass, in order.
type Signature struct {
	File, Name string // source file without extension, and function
	Threads    int    // maximum threads per block; 0 if the source has no plain number
	Params     []Param
}

// Param is a parameter of a kernel.
type Param struct {
	Type string // "pointer", "int" (signed or not), "long long" or "float"
	Name string
}

// Signatures returns the signatures of the kernels for CUDA, by name: those in folders cuda
// and shared of a folder such as kernels. Macros are expanded as by nvcc; the parts of a
// file for the race detector are skipped.
func Signatures(root fs.FS) (map[string]Signature, error) {
	return folders{root, "cuda"}.signatures(map[string]*macro{}, map[string]bool{"__CUDACC__": true}, (*preprocessor).cuda)
}

// signatures returns the signatures that parse finds in each file with some macros defined.
func (f folders) signatures(macros map[string]*macro, defined map[string]bool, parse func(p *preprocessor, file string) ([]Signature, error)) (map[string]Signature, error) {
	files, err := f.files()
	if err != nil {
		return nil, err
	}
	all := map[string]Signature{}
	for _, name := range files {
		p := &preprocessor{folders: f, macros: maps.Clone(macros), defined: defined}
		if err := p.file(name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found, err := parse(p, stem(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, s := range found {
			if old, ok := all[s.Name]; ok {
				return nil, fmt.Errorf("%s: kernel %s is in file %s too", name, s.Name, old.File)
			}
			all[s.Name] = s
		}
	}
	return all, nil
}

// cuda returns the kernels in the expanded text.
func (p *preprocessor) cuda(file string) (list []Signature, err error) {
	all, err := p.expand(tokens(p.text.String()), nil)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t string) bool { return strings.TrimSpace(t) == "" })
	for i, t := range all {
		if t != "__global__" {
			continue
		}
		s, err := signature(all[i+1:])
		if err != nil {
			return nil, fmt.Errorf("kernel %d: %w", len(list), err)
		}
		s.File = file
		list = append(list, s)
	}
	return list, nil
}

// signature parses "void __launch_bounds__(256) name(float* out, int n)".
func signature(rest []string) (s Signature, err error) {
	next := func() (t string) {
		if len(rest) > 0 {
			t, rest = rest[0], rest[1:]
		}
		return t
	}
	if t := next(); t != "void" {
		return s, fmt.Errorf("found %q, expected void", t)
	}
	s.Name = next()
	if s.Name == "__launch_bounds__" {
		bounds, after, err := list(rest)
		if err != nil || len(bounds) == 0 {
			return s, fmt.Errorf("__launch_bounds__: %w", errList)
		}
		s.Threads, rest = product(bounds[0]), after
		s.Name = next()
	}
	params, _, err := list(rest)
	if err != nil {
		return s, fmt.Errorf("%s: %w", s.Name, err)
	}
	for _, words := range params {
		p, err := param(words)
		if err != nil {
			return s, fmt.Errorf("%s: %w", s.Name, err)
		}
		s.Params = append(s.Params, p)
	}
	return s, nil
}

// product returns the product of numbers with asterisks between them, or 0 for other words.
func product(words []string) int {
	n := 1
	for i, w := range words {
		x, err := strconv.Atoi(w)
		switch {
		case i%2 == 0 && err == nil && x > 0 && n <= 1<<20/x:
			n *= x
		case i%2 == 0 || w != "*":
			return 0
		}
	}
	return n
}

// param parses "const float* __restrict__ x".
func param(words []string) (p Param, err error) {
	if len(words) < 2 || !word.MatchString(words[len(words)-1]) {
		return p, fmt.Errorf("parameter %q has no name", strings.Join(words, " "))
	}
	p.Name = words[len(words)-1]
	words = slices.DeleteFunc(slices.Clone(words[:len(words)-1]), func(w string) bool { return w == "const" || w == "__restrict__" })
	switch text := strings.Join(words, " "); {
	case slices.Contains(words, "*"):
		p.Type = "pointer"
	case text == "int", text == "uint", text == "unsigned", text == "unsigned int":
		p.Type = "int"
	case text == "long", text == "long long", text == "unsigned long long":
		p.Type = "long long"
	case text == "float":
		p.Type = "float"
	default:
		return p, fmt.Errorf("parameter %s is of type %q, expected a pointer, int, long long or float", p.Name, text)
	}
	return p, nil
}

var (
	word    = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	errList = fmt.Errorf("expected a list in parentheses")
)

// list parses a parenthesized list into its items, split at commas, and returns the rest.
func list(words []string) (items [][]string, rest []string, err error) {
	if len(words) == 0 || words[0] != "(" {
		return nil, nil, errList
	}
	depth, item := 1, []string{}
	for i, w := range words[1:] {
		switch w {
		case "(":
			depth++
		case ")":
			depth--
		}
		switch {
		case depth == 0:
			if len(item) > 0 || len(items) > 0 {
				items = append(items, item)
			}
			return items, words[i+2:], nil
		case depth == 1 && w == ",":
			items, item = append(items, item), []string{}
		default:
			item = append(item, w)
		}
	}
	return nil, nil, errList
}
