package kernels

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

//go:embed metal shared
var shaders embed.FS

// Metal returns the sources that a Metal device compiles when it is opened: folders metal
// and shared.
func Metal() fs.FS { return shaders }

// MetalSource returns a shader with its includes inlined, because Metal compiles source
// text and does not resolve files. Parameter file is the name of a file in folder metal or
// shared of root, without its extension. #line directives preserve file names and line
// numbers.
func MetalSource(root fs.FS, file string) (string, error) {
	var b strings.Builder
	f := folders{root, "metal"}
	err := f.inline(&b, file+".metal", &[]string{})
	if errors.Is(err, fs.ErrNotExist) && b.Len() == 0 {
		err = f.inline(&b, file+".cu", &[]string{})
	}
	if err != nil {
		return "", fmt.Errorf("kernels of %s for Metal: %w", file, err)
	}
	return b.String(), nil
}

var includes = regexp.MustCompile(`^\s*#\s*include\s+"([^"]+)"`)

// inline writes a file to b and replaces its includes by the headers that are not yet
// in seen.
func (f folders) inline(b *strings.Builder, name string, seen *[]string) error {
	if slices.Contains(*seen, name) {
		return nil
	}
	*seen = append(*seen, name)
	raw, err := f.read(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "#line 1 \"%s\"\n", name)
	number := 0
	for line := range strings.Lines(string(raw)) {
		number++
		m := includes.FindStringSubmatch(line)
		switch {
		case m != nil:
			if err := f.inline(b, m[1], seen); err != nil {
				return fmt.Errorf("%s:%d: %w", name, number, err)
			}
			fmt.Fprintf(b, "#line %d \"%s\"\n", number+1, name)
		case strings.HasPrefix(strings.TrimSpace(line), "#pragma once"):
			b.WriteString("\n")
		default:
			b.WriteString(line)
		}
	}
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteString("\n")
	}
	return nil
}

// MetalSignatures returns the signatures of the kernels for Metal, by name: those in
// folders metal and shared of a folder such as kernels. The parameters are first the
// pointers, which are buffers 0, 1 and so on, then the numbers, which are fields of one
// struct in the last buffer.
func MetalSignatures(root fs.FS) (map[string]Signature, error) {
	one := &macro{body: []string{"1"}}
	return folders{root, "metal"}.signatures(map[string]*macro{"LF_SIMD": one, "LF_BFLOAT": one}, nil, (*preprocessor).metal)
}

// metal returns the signatures of the kernels in the expanded text.
func (p *preprocessor) metal(file string) (all []Signature, err error) {
	text, err := p.expand(tokens(p.text.String()), nil)
	if err != nil {
		return nil, err
	}
	text = slices.DeleteFunc(text, func(t string) bool { return strings.TrimSpace(t) == "" })
	structs := map[string][]Param{}
	threads := 0
	for i, t := range text {
		rest := text[i+1:]
		switch {
		case t == "struct" && len(rest) > 2 && rest[1] == "{" && strings.HasSuffix(rest[0], "_args"):
			if structs[rest[0]], err = fields(rest[2:]); err != nil {
				return nil, fmt.Errorf("struct %s: %w", rest[0], err)
			}
		case t == "max_total_threads_per_threadgroup":
			bounds, _, err := list(rest)
			if err != nil || len(bounds) == 0 {
				return nil, fmt.Errorf("%s: %w", t, errList)
			}
			threads = product(bounds[0])
		case t == "kernel" && len(rest) > 1 && rest[0] == "void":
			s, err := kernelOf(rest[1:], structs)
			if err != nil {
				return nil, err
			}
			s.File, s.Threads, threads = file, threads, 0
			all = append(all, s)
		}
	}
	return all, nil
}

// header lists the fields of LF_ARGS in device.h of folder metal.
var header = []Param{
	{"int", "bound"}, {"int", "wide"},
	{"int", "first_x"}, {"int", "first_y"}, {"int", "first_z"}, {"int", "groups_x"}, {"int", "groups_y"}, {"int", "groups_z"},
}

var errArgs = errors.New("the first fields must be LF_ARGS: uint bound, wide and so on")

// fields parses "uint bound, wide; int n; }".
func fields(words []string) (all []Param, err error) {
	end := slices.Index(words, "}")
	if end < 0 {
		return nil, errors.New("has no end")
	}
	var field []string
	for _, w := range words[:end] {
		if w != ";" {
			field = append(field, w)
			continue
		}
		kind := ""
		for i, name := range field {
			switch {
			case i == 0:
				if kind = metalTypes[name]; kind == "" {
					return nil, fmt.Errorf("type %s, expected int, uint, long, ulong or float", name)
				}
			case i%2 == 1 && word.MatchString(name):
				all = append(all, Param{Type: kind, Name: name})
			case i%2 == 1 || name != ",":
				return nil, fmt.Errorf("found %q in %q", name, strings.Join(field, " "))
			}
		}
		field = nil
	}
	if len(all) < len(header) || !slices.Equal(all[:len(header)], header) {
		return nil, errArgs
	}
	return all[len(header):], nil
}

var metalTypes = map[string]string{"int": "int", "uint": "int", "long": "long long", "ulong": "long long", "float": "float"}

// kernelOf parses "name(device float* out [[buffer(0)]], constant name_args& a [[buffer(1)]], …".
func kernelOf(words []string, structs map[string][]Param) (s Signature, err error) {
	s.Name = words[0]
	params, _, err := list(words[1:])
	if err != nil {
		return s, fmt.Errorf("kernel %s: %w", s.Name, err)
	}
	numbers, found := []Param(nil), false
	for _, p := range params {
		at := slices.Index(p, "[")
		if at < 1 || !slices.Contains(p, "buffer") {
			if at < 1 {
				return s, fmt.Errorf("kernel %s: parameter %q has no attribute", s.Name, strings.Join(p, " "))
			}
			continue // position of the thread
		}
		if want := fmt.Sprintf("[ [ buffer ( %d ) ] ]", len(s.Params)); strings.Join(p[at:], " ") != want || found {
			return s, fmt.Errorf("kernel %s: parameter %q, expected buffer %d", s.Name, strings.Join(p, " "), len(s.Params))
		}
		name := p[at-1]
		switch kind := p[:at-1]; {
		case kind[0] == "constant" && len(kind) == 3 && kind[2] == "&":
			if numbers, found = structs[kind[1]]; !found {
				return s, fmt.Errorf("kernel %s: %s is no struct of numbers that ends in _args", s.Name, kind[1])
			}
		case kind[0] == "device" && slices.Contains(kind, "*"):
			s.Params = append(s.Params, Param{Type: "pointer", Name: name})
		default:
			return s, fmt.Errorf("kernel %s: parameter %s is a %q, expected a pointer to device memory or the struct of numbers", s.Name, name, strings.Join(kind, " "))
		}
	}
	if !found {
		return s, fmt.Errorf("kernel %s has no struct of numbers", s.Name)
	}
	s.Params = append(s.Params, numbers...)
	return s, nil
}
