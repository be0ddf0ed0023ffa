package load

import (
	"slices"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// Names of the measured programs. All except the first two are peers, which must be built.
const (
	ours   = "lorafuse"
	system = "system calls" // made by this program
	plainC = "c"            // the same, and more, made by another
	rust   = "rust"
	golang = "go"
	python = "python"
)

var peers = []string{plainC, rust, golang, python}

// spec describes a row for each of its inputs.
type spec struct {
	group, program string
	name           string // the operation
	op             string // its name in the program
	repeat         int    // repetitions in one process; 0 means 1. With more than one, the first is discarded
	inputs         []string
	moves          volume
	writes         bool // a file
	linux          bool // other systems cannot
}

// volume selects the bytes that a row moves.
type volume int

const (
	noBytes volume = iota
	allBytes
	headerBytes
)

var (
	models  = []string{baseFile, adapterFile}
	headers = []string{header1k, header50k}
)

// specs are the rows, group by group.
var specs = slices.Concat(
	group("Open and index, without a copy", models, noBytes, false,
		spec{program: ours, name: "Open, Views", op: "open", repeat: 30},
		spec{program: rust, name: "mmap, deserialize, tensors", op: "open", repeat: 30},
		spec{program: golang, name: "maruel Mapped.Open", op: "open", repeat: 30},
		spec{program: python, name: "load_file", op: "load_file", repeat: 5},
	),
	group("Header", headers, headerBytes, false,
		spec{program: ours, name: "FromBytes", op: "parse", repeat: 20},
		spec{program: rust, name: "SafeTensors::deserialize", op: "deserialize", repeat: 20},
		spec{program: rust, name: "SafeTensors::read_metadata", op: "read_metadata", repeat: 20},
		spec{program: golang, name: "maruel Parse", op: "parse", repeat: 20},
		spec{program: python, name: "safe_open", op: "safe_open_header", repeat: 20},
	),
	group("Every page resident", models, allBytes, false,
		spec{program: ours, name: "Open, Populate", op: "populate", repeat: 5},
		spec{program: system, name: "mmap with MAP_POPULATE", op: "map_populate", repeat: 5, linux: true},
		spec{program: plainC, name: "mmap with MAP_POPULATE", op: "populate", repeat: 5},
		spec{program: plainC, name: "mmap, MADV_POPULATE_READ", op: "populate_read", repeat: 5},
		spec{program: rust, name: "mmap, deserialize, one byte of every page", op: "touch", repeat: 5},
		spec{program: python, name: "load_file, one byte of every page", op: "load_file_touch", repeat: 5},
	),
	group("Private copy in memory", models, allBytes, false,
		spec{program: ours, name: "Open, Load, first use of the memory", op: "copy"},
		spec{program: ours, name: "Open, Load, into reused memory", op: "recopy", repeat: 2},
		spec{program: system, name: "read(2) into a reused buffer of huge pages", op: "read", repeat: 2},
		spec{program: plainC, name: "pread, 1 MiB, into a reused buffer of huge pages", op: "pread_1m", repeat: 2},
		spec{program: plainC, name: "pread, 16 MiB, into a reused buffer of huge pages", op: "pread_16m", repeat: 2},
		spec{program: plainC, name: "pread into fresh huge pages", op: "pread_fresh_huge"},
		spec{program: rust, name: "mmap, deserialize, to_vec of every tensor", op: "copy"},
		spec{program: python, name: "load_file, clone of every tensor", op: "load_file_clone"},
	),
	group("bf16 to f32", []string{baseFile}, allBytes, false,
		spec{program: ours, name: "Open, ToFloat32 into reused memory", op: "widen", repeat: 2},
		spec{program: python, name: "load_file, copy_ into reused memory", op: "load_file_widen", repeat: 2},
	),
	group("A new file", models, allBytes, true,
		spec{program: ours, name: "WriteFile", op: "save"},
		spec{program: ours, name: "WriteFile, Durable", op: "save_durable"},
		spec{program: system, name: "write(2), 16 MiB", op: "write"},
		spec{program: plainC, name: "write(2), 16 MiB", op: "write"},
		spec{program: plainC, name: "write(2), 16 MiB, fsync", op: "write_fsync"},
		spec{program: rust, name: "serialize_to_file", op: "save"},
		spec{program: python, name: "save_file", op: "save_file"},
	),
)

// group completes the rows of a group.
func group(name string, inputs []string, moves volume, writes bool, rows ...spec) []spec {
	for i := range rows {
		r := &rows[i]
		r.group, r.inputs, r.moves, r.writes = name, inputs, moves, writes
	}
	return rows
}

// row returns the row for one input, without measurements.
func (s *spec) row(input string) *bench.Row {
	return &bench.Row{Group: s.group, Program: s.program, Name: s.name, Input: input}
}

// own reports whether this program runs the operation itself.
func (s *spec) own() bool { return s.program == ours || s.program == system }

func (s *spec) bytes(f *file) int64 {
	switch s.moves {
	case allBytes:
		return f.data()
	case headerBytes:
		return f.header
	default:
		return 0
	}
}

// figure makes a sample of the times that an operation took in one process.
func (s *spec) figure(seconds []float64) float64 {
	if len(seconds) == 1 {
		return seconds[0]
	}
	return bench.Quantile(seconds[1:], 0.5)
}
