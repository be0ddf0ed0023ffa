package gpu

import "math"

// Pointer is where something lies on a device: whatever the device makes of the
// number. Its lowest bits say how it is aligned.
type Pointer uint64

// MaxArgs is the most arguments that a kernel has.
const MaxArgs = 56

// Launch is what a kernel is launched with in one run. Each argument, a pointer or
// a number of 4 or 8 bytes, lies at the start of a cell. Drivers in C read launches as
// they lie in memory.
type Launch struct {
	Function    uintptr   // the device's own handle of the kernel
	Grid, Block [3]uint32 // a Grid of zero blocks is left out
	Shared      uint32    // bytes of dynamic shared memory
	Count       uint32    // of arguments
	Args        [MaxArgs]uint64
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

// String is how C writes it.
func (k Kind) String() string { return [...]string{"pointer", "int", "long long", "float"}[k] }

// Arg is an argument of a launch.
type Arg struct {
	Kind  Kind
	Name  string // that of the kernel's parameter
	Value uint64
}

// Kinds are the types of the arguments that the launch was filled in with.
func (k *Kernel) Kinds() []Kind { return k.kinds[:k.Launch.Count] }

// SharedBytes is the dynamic shared memory of the kernel's blocks.
func (k *Kernel) SharedBytes() int { return k.shared }

// skip leaves the kernel out of this run.
func (k *Kernel) skip() { k.Launch.Grid[0] = 0 }

// grid sets the number of blocks, and begins the list of arguments.
func (k *Kernel) grid(x, y, z int) *Kernel {
	if x <= 0 || y <= 0 || z <= 0 {
		x = 0
	}
	k.Launch.Grid = [3]uint32{uint32(x), uint32(max(y, 1)), uint32(max(z, 1))}
	k.Launch.Count = 0
	return k
}

// threads sets the size of blocks, where that depends on the run.
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

// numbered are the names of parameters that there are several of: x0, x1 and so on.
func numbered(name string) (names [10]string) {
	for i := range names {
		names[i] = name + string(rune('0'+i))
	}
	return names
}

// perThread is how many elements a thread of an elementwise kernel takes.
const perThread = 4

// elementThreads is the number of threads of a block of elementwise kernels.
const elementThreads = 256

// elements sets the blocks of an elementwise kernel on n elements.
func (k *Kernel) elements(n int) *Kernel {
	return k.grid(blocks(n, elementThreads*perThread), 1, 1)
}

// blocks is how many parts of a size n needs.
func blocks(n, size int) int { return (n + size - 1) / size }
