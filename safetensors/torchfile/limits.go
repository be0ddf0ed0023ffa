package torchfile

// Limits on the resources that a file may request. Everything else is bounded
// by the size of the file itself: a length is compared with the available bytes
// before memory is allocated for it.
const (
	// maxPickle is the maximum size of a pickle and of an archive's directory,
	// the same as for the header of a safetensors file.
	maxPickle = 100_000_000
	// maxMemory is the approximate maximum memory of a pickle's values. One byte
	// of pickle can request a hundred bytes of memory, and four bytes can copy a
	// list of a million items through the memo.
	maxMemory = 256 << 20
	// maxStack is the maximum number of values on the stack.
	maxStack = 1 << 22
	// maxDepth is the maximum nesting of lists and dicts; Python's pickler also
	// fails at about a thousand.
	maxDepth = 1000
	// maxNamed is the maximum number of tensors, or of other values, counted under
	// all their names. A tensor that a list contains a million times takes two bytes
	// each time in the pickle, but hundreds in a File.
	maxNamed = 500_000
	// maxNames is the maximum total length of tensor names. A list contained
	// twice in a list, which is contained twice in another one and so on, has
	// exponentially many names.
	maxNames = 100_000_000
	// maxExpanded is the maximum total size of tensors that repeat elements of
	// their storage, such as a number expanded to a matrix. The size of the
	// file does not bound their size.
	maxExpanded = 1 << 30
	// maxInflated is the maximum size of a compressed storage with strided
	// tensors, which must be in memory as a whole.
	maxInflated = 1 << 30
	// maxRatio is the maximum number of bytes that one byte of a deflated
	// record can encode.
	maxRatio = 1032
)
