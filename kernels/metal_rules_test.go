package kernels

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// The rules here are what Apple's compiler, of which there is none where kernels are
// written, would refuse. Numbers of sections are those of the Metal Shading Language
// Specification, version 3.2; kernels keep to what versions from 2.4 on have.

// forbidden are words that no shader has.
var forbidden = map[string]string{
	"double": "there is no double (2.1)",
	"goto":   "no goto (1.5.4)", "new": "no new (1.5.4)", "delete": "no delete (1.5.4)", "virtual": "no virtual functions (1.5.4)",
	"throw": "no exceptions (1.5.4)", "try": "no exceptions (1.5.4)", "catch": "no exceptions (1.5.4)", "noexcept": "no noexcept (1.5.4)",
	"dynamic_cast": "no dynamic_cast (1.5.4)", "typeid": "no type identification (1.5.4)",
	"register": "no register (1.5.4)", "thread_local": "no thread_local (1.5.4)", "std": "no standard library of C++ (1.5.4)",
	"asm": "no assembly", "vertex": "a keyword (5.1)", "fragment": "a keyword (5.1)", "ray_data": "a keyword (4)", "object_data": "a keyword (4)",
}

// spaces are the address spaces of memory (4).
var spaces = []string{"device", "constant", "threadgroup", "thread"}

const (
	mostBuffers    = 31       // and the same of their arguments (5.2.1; Metal Feature Set Tables)
	mostArguments  = 8        // of threadgroup memory, with an index below (5.2.1)
	mostOfAGroup   = 32 << 10 // bytes of threadgroup memory (Metal Feature Set Tables)
	mostLinesOfOne = 500
)

// refused finds what is wrong with the words of a shader.
func (s *shader) refused() (findings []string) {
	add := func(i int, what string) {
		text := strings.Join(s.words[max(0, i-6):min(len(s.words), i+5)], " ")
		findings = append(findings, fmt.Sprintf("%s: %s", text, what))
	}
	for i, w := range s.words {
		next := func(n int) string { return s.words[min(i+n, len(s.words)-1)] }
		switch what := forbidden[w]; {
		case what != "":
			add(i, what)
		case w == "long" && next(1) == "long":
			add(i, "there is no long long: long has 64 bits (2.1)")
		case strings.HasPrefix(w, "atomic") || strings.HasPrefix(w, "memory_order"):
			add(i, "an atomic: sums have a fixed order, and few devices have those of 64 bits (6.15)")
		case w == "[" && next(1) == "]" && next(2) == "(" && i > 0 && !word.MatchString(s.words[i-1]),
			w == "[" && (next(1) == "=" || next(1) == "&" && next(2) == "]"):
			add(i, "a lambda (1.5.4: not before version 3.2)")
		case floating.MatchString(w) && !strings.ContainsAny(w[len(w)-1:], "fFhH"):
			add(i, "a number of type double: it lacks an f (2.1)")
		case number.MatchString(w) && strings.Contains(strings.ToLower(w), "ll"):
			add(i, "a number of type long long (2.1)")
		case w == "*" || w == "&":
			if what := s.pointer(i); what != "" {
				add(i, what)
			}
		}
	}
	for _, f := range s.funcs {
		for _, what := range s.inFunction(f) {
			findings = append(findings, f.name+": "+what)
		}
	}
	for _, cycle := range s.recursive() {
		findings = append(findings, cycle+": a function that calls itself (1.5.4: not before version 2.4, and its stack is not known)")
	}
	return append(findings, s.loose...)
}

var floating = regexp.MustCompile(`^(\d+\.\d*|\.\d+|\d+(\.\d*)?[eE][-+]?\d+|0[xX][\da-fA-F.]+[pP][-+]?\d+)[fFhHlL]?$`)

// pointer is what is wrong with a * or & where it makes a pointer or a reference.
func (s *shader) pointer(i int) string {
	from := i - 1
	if from > 0 && s.words[from] == "(" {
		if close := s.match[from]; close == i+2 && s.ofType(from-1) && s.words[close+1] == "(" {
			return "a pointer to a function (1.5.4: not before version 2.3)"
		}
		from--
	}
	if from < 0 || !s.ofType(from) {
		return ""
	}
	for j := from; j >= 0; j-- {
		switch w := s.words[j]; {
		case slices.Contains(spaces, w):
			return ""
		case w == ">":
			for depth := 0; j >= 0; j-- {
				if s.words[j] == ">" {
					depth++
				} else if s.words[j] == "<" {
					if depth--; depth == 0 {
						break
					}
				}
			}
		case w != "::" && !word.MatchString(w):
			j = 0
		}
	}
	return "a pointer or reference without an address space (4)"
}

// ofType is whether the word at i ends the name of a type.
func (s *shader) ofType(i int) bool {
	if i < 0 {
		return false
	}
	if s.words[i] == ">" {
		for depth := 0; i >= 0; i-- {
			if s.words[i] == ">" {
				depth++
			} else if s.words[i] == "<" {
				if depth--; depth == 0 {
					break
				}
			}
		}
		return i > 0 && s.types[s.words[i-1]]
	}
	if i > 0 && s.words[i-1] == "." { // a member of the name of a type
		return false
	}
	return s.words[i] == "const" || s.types[s.words[i]]
}

// inFunction finds what is wrong with a function's parameters and variables.
func (s *shader) inFunction(f shaderFunc) (findings []string) {
	if f.kernel {
		findings = append(findings, s.arguments(f)...)
	}
	memory, fixed := int64(0), map[string]bool{}
	for i := f.body; i < f.end; i++ {
		switch s.words[i] {
		case "const", "constexpr":
			s.constants(i+1, fixed)
		case "static":
			findings = append(findings, "a static variable of a function (5.3)")
		case "threadgroup":
			if s.words[i-1] == "(" && s.words[i-2] != "for" || slices.Contains([]string{",", "<", "const"}, s.words[i-1]) {
				continue // a type
			}
			end := i + slices.IndexFunc(s.words[i:], func(w string) bool { return w == ";" || w == "=" || w == "(" })
			declared := s.words[i+1 : end]
			if slices.Contains(declared, "*") || slices.Contains(declared, "&") || s.words[end] == "(" {
				continue
			}
			if !f.kernel {
				findings = append(findings, "threadgroup memory of a function that is no kernel (4.4)")
			}
			n, ok := s.bytes(declared)
			if !ok {
				findings = append(findings, strings.Join(declared, " ")+": threadgroup memory of a size that is not known")
			}
			memory += n
		}
		if s.words[i] == "[" && word.MatchString(s.words[i-1]) && s.ofType(i-2) {
			if inside := s.words[i+1 : s.match[i]]; !s.fixedSize(inside, fixed) {
				findings = append(findings, fmt.Sprintf("%s[%s]: an array of a size that is no constant (1.5)", s.words[i-1], strings.Join(inside, " ")))
			}
		}
	}
	if memory > mostOfAGroup {
		findings = append(findings, fmt.Sprintf("%d bytes of threadgroup memory, there are %d", memory, mostOfAGroup))
	}
	return findings
}

// arguments looks at the attributes of a kernel's parameters.
func (s *shader) arguments(f shaderFunc) (findings []string) {
	for _, p := range split(s.words[f.params:f.params1]) {
		text := strings.Join(p, " ")
		at := slices.Index(p, "[")
		if at < 0 || at+3 >= len(p) {
			findings = append(findings, text+": a parameter without an attribute (5.2)")
			continue
		}
		most, ok := map[string]int{"buffer": mostBuffers, "threadgroup": mostArguments}[p[at+2]]
		if n, err := strconv.Atoi(p[min(at+4, len(p)-1)]); ok && (err != nil || n >= most) {
			findings = append(findings, fmt.Sprintf("%s: there are %d (5.2.1)", text, most))
		}
	}
	return findings
}

// constants adds the names of the integers of a declaration that compilers know.
func (s *shader) constants(from int, fixed map[string]bool) {
	end := from + slices.Index(s.words[from:], ";")
	if !slices.Contains([]string{"int", "uint", "short", "ushort", "long", "ulong"}, s.words[from]) {
		return
	}
	for _, one := range split(s.words[from+1 : end]) {
		if len(one) > 2 && one[1] == "=" && s.fixedSize(one[2:], fixed) {
			fixed[one[0]] = true
		}
	}
}

// fixedSize is whether a size is one that compilers know, the names in fixed among them.
func (s *shader) fixedSize(words []string, fixed map[string]bool) bool {
	for i, w := range words {
		if _, known := s.enums[w]; word.MatchString(w) && !known && !s.fixed[w] && !fixed[w] && w != "sizeof" && !s.types[w] && !(i > 0 && words[i-1] == "::") && !(i+1 < len(words) && words[i+1] == "::") {
			return false
		}
	}
	return len(words) > 0
}

// bytes is the size of variables such as "float a[16][68], b[4]".
func (s *shader) bytes(declared []string) (sum int64, ok bool) {
	declared = slices.DeleteFunc(slices.Clone(declared), func(w string) bool { return w == "const" })
	if len(declared) < 2 || s.sizes[declared[0]] == 0 {
		return 0, false
	}
	for _, one := range split(declared[1:]) {
		size := int64(s.sizes[declared[0]])
		for i := 1; i < len(one); i++ {
			end := slices.Index(one[i:], "]")
			if one[i] != "[" || end < 0 {
				return 0, false
			}
			n, known := s.value(one[i+1:i+end], "")
			if !known {
				return 0, false
			}
			size, i = size*n, i+end
		}
		sum += size
	}
	return sum, true
}

// recursive finds the functions that call themselves, by others perhaps. Functions are
// told apart by name, struct and number of parameters.
func (s *shader) recursive() (cycles []string) {
	key := func(owner, name string, n int) string { return fmt.Sprintf("%s::%s/%d", owner, name, n) }
	calls := map[string][]string{}
	for _, f := range s.funcs {
		calls[key(f.owner, f.name, len(split(s.words[f.params:f.params1])))] = nil
	}
	for _, f := range s.funcs {
		me := key(f.owner, f.name, len(split(s.words[f.params:f.params1])))
		for i := f.body; i < f.end; i++ {
			open := i + 1
			if s.words[open] == "<" { // values of a template
				open += slices.IndexFunc(s.words[open:], func(w string) bool { return w == ">" || w == ";" }) + 1
			}
			if !word.MatchString(s.words[i]) || s.words[open] != "(" {
				continue
			}
			n := len(split(s.words[open+1 : s.match[open]]))
			owners := []string{f.owner, ""}
			switch s.words[i-1] {
			case "::":
				owners = []string{s.words[i-2]}
			case ".":
				owners = []string{s.typeOf(s.words[i-2])}
			}
			for _, owner := range owners {
				if _, ok := calls[key(owner, s.words[i], n)]; ok {
					calls[me] = append(calls[me], key(owner, s.words[i], n))
					break
				}
			}
		}
	}
	var reaches func(from, to string, seen map[string]bool) bool
	reaches = func(from, to string, seen map[string]bool) bool {
		for _, next := range calls[from] {
			if next == to || !seen[next] && func() bool { seen[next] = true; return reaches(next, to, seen) }() {
				return true
			}
		}
		return false
	}
	for name := range calls {
		if reaches(name, name, map[string]bool{}) {
			cycles = append(cycles, name)
		}
	}
	return cycles
}

// typeOf is the type that a variable of a name is declared with somewhere.
func (s *shader) typeOf(name string) string {
	for i := 1; i < len(s.words); i++ {
		if s.words[i] == name && s.types[s.words[i-1]] {
			return s.words[i-1]
		}
	}
	return "?"
}

// sourceRules finds what is wrong with the text of a file.
func sourceRules(name, source string) (findings []string) {
	if !strings.HasPrefix(source, "// ") {
		findings = append(findings, "does not open with what it computes")
	}
	if n := strings.Count(source, "\n"); n > mostLinesOfOne {
		findings = append(findings, fmt.Sprintf("has %d lines, expected %d at most", n, mostLinesOfOne))
	}
	code := remarks.ReplaceAllString(source, "")
	if name != "metal/device.h" && regexp.MustCompile(`\bkernel\b`).MatchString(code) {
		findings = append(findings, "a kernel without LF_KERNEL, which says how many threads it may have (5.1.3)")
	}
	for _, m := range regexp.MustCompile(`#\s*include\s*[<"]([^>"]*)[>"]`).FindAllStringSubmatch(code, -1) {
		if !strings.HasPrefix(m[1], "metal_") && !strings.HasSuffix(m[1], ".h") {
			findings = append(findings, m[0]+": a header that Metal does not have (6)")
		}
	}
	return findings
}

// shaderRules finds what is wrong with a file in all of its forms.
func shaderRules(root fs.FS, file string) (findings []string, err error) {
	for _, form := range [][2]string{{"1", "1"}, {"1", "0"}, {"0", "1"}, {"0", "0"}} {
		s, err := readShader(root, file, form[0], form[1])
		if err != nil {
			return nil, err
		}
		findings = append(findings, s.refused()...)
	}
	slices.Sort(findings)
	return slices.Compact(findings), nil
}

func TestShaderRules(t *testing.T) {
	files, err := fs.Glob(Metal(), "*/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		raw, err := fs.ReadFile(Metal(), name)
		require.NoError(t, err)
		for _, f := range sourceRules(name, string(raw)) {
			t.Errorf("%s: %s", name, f)
		}
		if strings.HasSuffix(name, ".h") {
			continue
		}
		findings, err := shaderRules(Metal(), path.Base(name))
		require.NoError(t, err)
		for _, f := range findings {
			t.Errorf("%s: %s", name, f)
		}
	}
}

// Rules that find nothing are worth nothing: each line of planted is one that a rule
// finds, by words of the finding.
func TestShaderRulesFind(t *testing.T) {
	planted := map[string]string{
		"void f() { double x; }":                                                    "no double",
		"void f() { long long x; }":                                                 "no long long",
		"void f() { float x = 0x1ll; }":                                             "type long long",
		"void f() { float x = 1.0; }":                                               "lacks an f",
		"void f() { float x = 1e-5; }":                                              "lacks an f",
		"void f() { float x = .5; }":                                                "lacks an f",
		"void f() { float x = 0x1p-3; }":                                            "lacks an f",
		"void f() { goto x; }":                                                      "no goto",
		"void f() { new int; }":                                                     "no new",
		"void f(device int* x) { delete x; }":                                       "no delete",
		"struct s { virtual void f(); };":                                           "no virtual",
		"void f() { throw 1; }":                                                     "no exceptions",
		"void f() { try { } catch (int) { } }":                                      "no exceptions",
		"void f() { std::min(1, 2); }":                                              "standard library",
		"void f() { auto g = [=](int x) { }; }":                                     "a lambda",
		"void f() { auto g = [](int x) { }; }":                                      "a lambda",
		"struct a { }; struct b : a { int x; };":                                    "derived",
		"void f() { int vertex = 0; }":                                              "a keyword",
		"void f(device atomic_uint* x) { }":                                         "an atomic",
		"void f(device ulong* x) { atomic_max(x); }":                                "an atomic",
		"void f(float* x) { }":                                                      "without an address space",
		"void f(const float& x) { }":                                                "without an address space",
		"struct s { int x; }; void f(s& x) { }":                                     "without an address space",
		"template <class T> void f(T* x) { }":                                       "without an address space",
		"template <int V> struct p { }; void f(p<4>& x) { }":                        "without an address space",
		"void f(device int* x) { int* y = 0; }":                                     "without an address space",
		"void f(int (*x)[3]) { }":                                                   "without an address space",
		"void f(device int* x) { g((int*)x); }":                                     "without an address space",
		"void f(void (*g)(int)) { }":                                                "pointer to a function",
		"void f() { static int x; }":                                                "static variable",
		"void f(int n) { float x[n]; }":                                             "no constant",
		"void f(int n) { const int m = n; float x[m]; }":                            "no constant",
		"void f(int n) { float x[2 * n]; }":                                         "no constant",
		"void f() { threadgroup int x[3]; }":                                        "no kernel",
		"constexpr int n = 3;":                                                      "not in constant memory",
		"const float table[2] = {1.0f, 2.0f};":                                      "not in constant memory",
		"struct s { static constexpr int n = 3; };":                                 "a static member",
		"int f(int n) { return n ? f(n - 1) : 0; }":                                 "calls itself",
		"int g(int n); int f(int n) { return g(n); } int g(int n) { return f(n); }": "calls itself",
		"struct s { void f(int n) { f(n); } };":                                     "calls itself",
		"struct s { void f(int n) { s o; o.f(n); } };":                              "calls itself",
		"template <int V> int f(int n) { return f<V - 1>(n); }":                     "calls itself",
		"kernel void k(device int* x [[buffer(31)]]) { }":                           "there are 31",
		"kernel void k(threadgroup int* x [[threadgroup(8)]]) { }":                  "there are 8",
		"kernel void k(device int* x) { }":                                          "without an attribute",
		"kernel void k(device int* x [[buffer(0)]]) { threadgroup float a[64][64], b[64][65]; }":     "33024 bytes",
		"struct s { enum { n = 3, m = n * 4096 }; }; kernel void k() { threadgroup uint4 a[s::m]; }": "196608 bytes",
		"template <int V> struct s { }; kernel void k() { threadgroup s<3> a[2]; }":                  "not known",
		"#if LF_SIMD\n#else\nvoid f() { double x; }\n#endif":                                         "no double",
		"#define LF_X(T) void f(T* x) { }\nLF_X(float)":                                              "without an address space",
	}
	for text, want := range planted {
		findings, err := shaderRules(fstest.MapFS{"metal/x.metal": {Data: []byte(text)}}, "x.metal")
		require.NoError(t, err, text)
		require.Contains(t, strings.Join(findings, "\n"), want, text)
		require.Len(t, findings, map[bool]int{true: 1, false: len(findings)}[!strings.Contains(text, "try") && !strings.Contains(text, "g(int n);")], "%s: %q", text, findings)
	}
	require.Equal(t, []string{
		"does not open with what it computes", "has 501 lines, expected 500 at most",
		"a kernel without LF_KERNEL, which says how many threads it may have (5.1.3)",
		"#include <cmath>: a header that Metal does not have (6)",
	}, sourceRules("x.metal", "#include <cmath>\nkernel void k() {}\n"+strings.Repeat("\n", 499)))
}

// onlyOne are the kernels, and files of them, that are in one of the folders alone, and
// why.
var onlyOne = map[string]string{
	"probe":                  "asks for what NVIDIA's devices have; Metal's probe is in backend/metal",
	"gemm_f32":               "gemm_mma_f32_64 is for them: tiles by simdgroups are as exact in float32",
	"gemm_thin":              "fragments of simdgroups have no known layout, so that weights cannot be read straight into them",
	"rows_gemm":              "likewise; rows_gemm_f32 is for simdgroups",
	"gemm_mma_f32_64":        "tensor cores round float32, which simdgroups do not",
	"peak_mma_f32":           "tensor cores round float32",
	"peak_mma_f16":           "tensor cores multiply float16 at the rate of bfloat16",
	"gemm_bf16":              "its tiles want more threadgroup memory than there is, and Metal has no asynchronous copies",
	"gemm_narrow":            "its tiles want more threadgroup memory than there is, and Metal has no asynchronous copies",
	"gemm_group":             "gemm_thin and gemm_narrow are for them",
	"gemm_mma_128":           "its tiles want more threadgroup memory than there is",
	"conv2d_f32":             "conv2d_mma_f32_64 is for it: tiles by simdgroups are as exact in float32",
	"conv2d_mma_128":         "its tiles want more threadgroup memory than there is",
	"conv2d_mma_f32_64":      "tensor cores round float32, which simdgroups do not",
	"attention_decode_512_4": "four heads of 512 want more threadgroup memory than there is",
	"adamw_group":            "CUDA reads the addresses of all tensors from a table, as Metal does where it can",
}

// Every kernel of kernels/cuda has its twin of the same name in the file of the same name
// of kernels/metal, which has no others.
func TestTwins(t *testing.T) {
	cuda, err := Signatures(os.DirFS("."))
	require.NoError(t, err)
	metal, err := MetalSignatures(Metal())
	require.NoError(t, err)
	for _, f := range single(cuda, metal, "kernels/metal") {
		t.Error(f)
	}
	for _, f := range single(metal, cuda, "kernels/cuda") {
		t.Error(f)
	}
	require.Equal(t, []string{"x: kernel a is not in file x of there"}, single(map[string]Signature{"a": {File: "x"}}, map[string]Signature{"a": {File: "y"}}, "there"))
}

// single are the kernels that others, those of a folder, do not have in the same file.
func single(kernels, others map[string]Signature, folder string) (findings []string) {
	for name, s := range kernels {
		if onlyOne[name] == "" && onlyOne[s.File] == "" && others[name].File != s.File {
			findings = append(findings, fmt.Sprintf("%s: kernel %s is not in file %s of %s", s.File, name, s.File, folder))
		}
	}
	return findings
}
