package gpu

import (
	"math"
	"strconv"
)

// Pointer is an address on a device, encoded as the device chooses. Its lowest bits show the alignment.
type Pointer uint64

// MaxArgs is the most arguments that a kernel has.
const MaxArgs = 68

// Launch holds the parameters of a kernel launch in one run. Each argument, a pointer or a number of 4 or 8 bytes,
// starts its own cell. C code of the drivers reads this memory layout directly.
type Launch struct {
	Function    uintptr   // the device's own handle of the kernel
	Grid, Block [3]uint32 // a Grid of zero blocks is left out
	Shared      uint32    // bytes of dynamic shared memory
	Count       uint32    // of arguments
	Accesses    [2]uint32 // the launch reads addresses of memory from a table: range of Run.Accesses
	Args        [MaxArgs]uint64
}

// Access is memory that a launch reaches by an address in a table.
type Access struct {
	At      Pointer // 0 for none
	Written uint32  // 1 if the launch writes it
	_       uint32
}

// Kernel is one kernel that a program launches in every run, unless it is left out.
type Kernel struct {
	File, Name string // of the source, without its ending, and in it
	Launch     *Launch

	block  [3]uint32
	shared int
	kinds  [MaxArgs]Kind // of the launch's arguments
	record func(Arg)     // tests see each argument
}

// Kind is the type of an argument.
type Kind uint8

// The types of arguments, as kernels of CUDA have them.
const (
	PointerKind Kind = iota // of any elements
	IntKind                 // int and unsigned
	LongKind                // long long
	FloatKind
)

// String returns the C name of the type.
func (k Kind) String() string { return [...]string{"pointer", "int", "long long", "float"}[k] }

// Arg is an argument of a launch.
type Arg struct {
	Kind  Kind
	Name  string // that of the kernel's parameter
	Value uint64
}

// Kinds returns the types of the arguments in the launch.
func (k *Kernel) Kinds() []Kind { return k.kinds[:k.Launch.Count] }

// SharedBytes returns the dynamic shared memory per block, in bytes.
func (k *Kernel) SharedBytes() int { return k.shared }

// skip disables the kernel in this run.
func (k *Kernel) skip() { k.Launch.Grid[0] = 0 }

// grid sets the number of blocks and starts the argument list.
func (k *Kernel) grid(x, y, z int) *Kernel {
	if x <= 0 || y <= 0 || z <= 0 {
		x = 0
	}
	k.Launch.Grid = [3]uint32{uint32(x), uint32(max(y, 1)), uint32(max(z, 1))}
	k.Launch.Count = 0
	return k
}

// accesses records that the kernel reads the addresses that Run.list writes from one number up to another.
func (k *Kernel) accesses(from, to int) { k.Launch.Accesses = [2]uint32{uint32(from), uint32(to)} }

// threads sets the block size if it depends on the run.
func (k *Kernel) threads(n uint32) { k.Launch.Block[0] = n }

func (k *Kernel) arg(kind Kind, name string, x uint64) *Kernel {
	k.Launch.Args[k.Launch.Count] = x
	k.kinds[k.Launch.Count] = kind
	k.Launch.Count++
	if k.record != nil {
		k.record(Arg{kind, name, x})
	}
	return k
}

// pointer adds an argument that is an address.
func (k *Kernel) pointer(name string, p Pointer) *Kernel {
	return k.arg(PointerKind, name, uint64(p))
}

// int adds an argument of type int or unsigned.
func (k *Kernel) int(name string, x int) *Kernel { return k.arg(IntKind, name, uint64(uint32(x))) }

// long adds an argument of type long long.
func (k *Kernel) long(name string, x int) *Kernel { return k.arg(LongKind, name, uint64(x)) }

// float adds an argument of type float.
func (k *Kernel) float(name string, x float32) *Kernel {
	return k.arg(FloatKind, name, uint64(math.Float32bits(x)))
}

// numbered returns the names of numbered parameters: x0, x1 and so on.
func numbered(name string) (names [16]string) {
	for i := range names {
		names[i] = name + strconv.Itoa(i)
	}
	return names
}

// perThread is the number of elements per thread in elementwise kernels.
const perThread = 4

// elementThreads is the number of threads of a block of elementwise kernels.
const elementThreads = 256

// elements sets the blocks of an elementwise kernel on n elements.
func (k *Kernel) elements(n int) *Kernel {
	return k.grid(blocks(n, elementThreads*perThread), 1, 1)
}

// blocks returns the number of parts of the given size that cover n.
func blocks(n, size int) int { return (n + size - 1) / size }
