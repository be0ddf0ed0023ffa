package torchfile

// What a file may ask for at most. Everything else is bounded by the size of
// the file itself: a length is compared with what is there before memory is
// taken for it.
const (
	// maxPickle is the size of a pickle and of the directory of an archive, that
	// of the longest header of a safetensors file.
	maxPickle = 100_000_000
	// maxMemory is what the values of a pickle may take, about. A byte of pickle
	// can ask for a hundred bytes of memory, and by way of the memo a list of a
	// million items can be copied with four.
	maxMemory = 256 << 20
	// maxStack is the number of values that wait to be put into something.
	maxStack = 1 << 22
	// maxDepth is how deep lists and dicts may be nested; Python's pickler, too,
	// gives up at about a thousand.
	maxDepth = 1000
	// maxNamed is the number of tensors, or of other values, under all their names:
	// one that lies in a list a million times takes two bytes for each in the pickle,
	// and hundreds in a File.
	maxNamed = 500_000
	// maxNames is the length of the names of all tensors together. A list that is
	// in a list twice, and that one again, has names without number.
	maxNames = 100_000_000
	// maxExpanded is the size of all tensors together that repeat elements of
	// their storage, such as a number expanded to a matrix: their size is not
	// bounded by that of the file.
	maxExpanded = 1 << 30
	// maxInflated is the size of a compressed storage that must be in memory as a
	// whole because its tensors are strided.
	maxInflated = 1 << 30
	// maxRatio is how many bytes one byte of a deflated record can stand for.
	maxRatio = 1032
)
