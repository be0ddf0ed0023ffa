package arm64

import (
	"fmt"
	"io"
	"log"
	"strings"
)

// V is a vector register: 0 to 31 are machine registers, the others are virtual. Its lowest lanes are the float
// register of the same number.
type V int

// R is a 64-bit general register.
type R int

func (r R) String() string { return fmt.Sprintf("R%d", int(r)) }

// machine is the number of machine vector registers.
const machine = 32

// Func is a function under construction. Its methods append instructions.
type Func struct {
	name, signature, doc string

	params   map[string]param
	argBytes int
	frame    int // bytes of locals

	code    []instr
	virtual V // the next virtual register
	general R // the next general register of Reg
	labels  int
}

type param struct{ offset, size int }

// instr is an instruction, or a label if nothing else is set.
type instr struct {
	label  string
	branch string // possible branch target
	text   string // format in Go's assembly, or of the comment next to a word
	args   []any  // of the format; V among them are allocated
	word   uint32
	isWord bool
	regs   []V // of a word, at the bits of fields
	fields []uint
}

func newFunc(name, signature, doc string) *Func {
	f := &Func{name: name, signature: signature, doc: doc, params: map[string]param{}, virtual: machine}
	in, out, _ := strings.Cut(signature, ")")
	f.parameters(in)
	if out = strings.TrimSpace(out); out != "" {
		f.argBytes = (f.argBytes + 7) &^ 7
		f.place("ret", out)
	}
	return f
}

// parameters computes the layout of the arguments as Go's assembly sees them.
func (f *Func) parameters(list string) {
	var names []string
	for p := range strings.SplitSeq(list, ",") {
		name, typ, typed := strings.Cut(strings.TrimSpace(p), " ")
		names = append(names, name)
		if !typed {
			continue
		}
		for _, n := range names {
			f.place(n, typ)
		}
		names = nil
	}
}

func (f *Func) place(name, typ string) {
	size := 8
	switch typ {
	case "bool":
		size = 1
	case "float32", "uint32":
		size = 4
	}
	f.argBytes = (f.argBytes + size - 1) &^ (size - 1)
	if strings.HasPrefix(typ, "[]") {
		f.params[name+"_base"], f.params[name+"_len"] = param{f.argBytes, 8}, param{f.argBytes + 8, 8}
		size = 24
	}
	f.params[name] = param{f.argBytes, size}
	f.argBytes += size
}

func (f *Func) arg(name string) string {
	p, ok := f.params[name]
	if !ok {
		log.Fatalf("%s has no parameter %s", f.name, name)
	}
	return fmt.Sprintf("%s+%d(FP)", name, p.offset)
}

// Load loads a parameter; parts of a slice are called name_base and name_len.
func (f *Func) Load(name string, r R) {
	op := "MOVD"
	if f.params[name].size == 1 {
		op = "MOVBU"
	}
	f.Go(op+" "+f.arg(name)+", %v", r)
}

// LoadFloat loads a float parameter into lane 0.
func (f *Func) LoadFloat(name string, d V) { f.Go("FMOVS "+f.arg(name)+", F%v", d) }

// Return stores lane 0 as the result.
func (f *Func) Return(s V) { f.Go("FMOVS F%v, "+f.arg("ret"), s) }

// Reg returns an unused general register. It skips registers of the system, the assembler and the runtime.
func (f *Func) Reg() R {
	r := f.general
	f.general++
	if f.general == 16 {
		f.general = 19
	}
	if r > 25 {
		log.Fatalf("%s needs more general registers", f.name)
	}
	return r
}

// Vec returns a new virtual register.
func (f *Func) Vec() V {
	f.virtual++
	return f.virtual - 1
}

// Locals reserves bytes of the frame, starting at 8(RSP).
func (f *Func) Locals(n int) { f.frame = n }

// Label places a label.
func (f *Func) Label(name string) { f.code = append(f.code, instr{label: name}) }

// Fresh returns a unique label name.
func (f *Func) Fresh(name string) string {
	f.labels++
	return fmt.Sprintf("%s%d", name, f.labels)
}

// Align aligns a loop for the decoder.
func (f *Func) Align() { f.Go("PCALIGN $16") }

// Go emits an instruction that Go's assembler supports. The verb for a vector register is %v after F or V.
func (f *Func) Go(format string, args ...any) {
	f.code = append(f.code, instr{text: format, args: args})
}

// Branch emits a branch of Go's assembler: "B", "BLT", "CBZ R1,".
func (f *Func) Branch(op, label string) {
	f.code = append(f.code, instr{branch: label, text: op + " " + strings.ReplaceAll(label, "%", "%%")})
}

// Word emits an instruction by its encoding, with registers at the given bits. format and args are its name for the
// comment.
func (f *Func) Word(word uint32, regs []V, fields []uint, format string, args ...any) {
	f.code = append(f.code, instr{isWord: true, word: word, regs: regs, fields: fields, text: format, args: args})
}

// Ret emits the return instruction.
func (f *Func) Ret() { f.Go("RET") }

func (f *Func) print(w io.Writer) {
	fmt.Fprintf(w, "\n// func %s(%s\nTEXT ·%s(SB), NOSPLIT, $%d-%d\n", f.name, closed(f.signature), f.name, f.frame, f.argBytes)
	for _, i := range f.code {
		text := fmt.Sprintf(i.text, i.args...)
		switch {
		case i.label != "":
			fmt.Fprintf(w, "\n%s:\n", i.label)
		case i.isWord:
			for k, r := range i.regs {
				i.word |= uint32(r) << i.fields[k]
			}
			fmt.Fprintf(w, "\tWORD $0x%08x // %s\n", i.word, text)
		default:
			fmt.Fprintf(w, "\t%s\n", text)
		}
	}
}
