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
	inputs         []string
	out            outcome
	repeat         int  // repetitions in one process; 0 means 1. With more than one, the first is discarded
	pickled        bool // reads the .pt version of the file
	linux          bool // other systems cannot
	moves          volume
	asked          []bar
}

// bar is the maximum of a row, as a fraction of the fastest other row. Without other rows, it is the maximum memory as
// a multiple of the data or, for rows that move no data, the maximum share of the file that may be read.
type bar struct {
	factor float64
	beside []peer
}

// worthWeighing is the smallest file size for which a program's runtime memory is negligible.
const worthWeighing = 500_000_000

// peer names a row of the same group.
type peer struct{ program, op string }

func atMost(factor float64, beside ...peer) bar { return bar{factor, beside} }

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
	group("Open and index, without a copy", models, noBytes, nothing,
		spec{program: ours, name: "Open, Views", op: "open", repeat: 30, asked: []bar{atMost(1, peer{rust, "open"})}},
		spec{program: rust, name: "mmap, deserialize, tensors", op: "open", repeat: 30},
		spec{program: golang, name: "maruel Mapped.Open", op: "open", repeat: 30},
		spec{program: python, name: "load_file", op: "load_file", repeat: 5},
		spec{program: ours, name: "first Open of a process", op: "open"},
		spec{program: rust, name: "first of a process", op: "open"},
	),
	group("One tensor", []string{manyFile}, noBytes, nothing,
		spec{program: ours, name: "Open, Lookup, copy", op: "one", repeat: 30},
		spec{program: ours, name: "the same, nothing in the page cache", op: "one_cold", linux: true, asked: []bar{atMost(0.02)}},
		spec{program: python, name: "safe_open, get_tensor, clone", op: "safe_open_one", repeat: 10},
	),
	group("Header", headers, headerBytes, nothing,
		spec{program: ours, name: "FromBytes", op: "parse", repeat: 20, asked: []bar{atMost(0.4, peer{rust, "deserialize"}, peer{rust, "read_metadata"})}},
		spec{program: rust, name: "SafeTensors::deserialize", op: "deserialize", repeat: 20},
		spec{program: rust, name: "SafeTensors::read_metadata", op: "read_metadata", repeat: 20},
		spec{program: golang, name: "maruel Parse", op: "parse", repeat: 20},
		spec{program: python, name: "safe_open", op: "safe_open_header", repeat: 20},
		spec{program: python, name: "json.loads", op: "json_loads", repeat: 20},
	),
	group("Every page resident", models, allBytes, nothing,
		spec{program: ours, name: "Open, Populate", op: "populate", repeat: 5, asked: []bar{
			atMost(0.85, peer{rust, "touch"}), atMost(1.1, peer{system, "map_populate"}, peer{plainC, "populate"}, peer{plainC, "populate_read"}),
		}},
		spec{program: ours, name: "Open, Populate, 1 thread", op: "populate_1", repeat: 5},
		spec{program: ours, name: "Open, one byte of every page", op: "touch", repeat: 5},
		spec{program: system, name: "mmap with MAP_POPULATE", op: "map_populate", repeat: 5, linux: true},
		spec{program: plainC, name: "mmap with MAP_POPULATE", op: "populate", repeat: 5},
		spec{program: plainC, name: "mmap, MADV_POPULATE_READ", op: "populate_read", repeat: 5},
		spec{program: plainC, name: "mmap, one byte of every page", op: "touch", repeat: 5},
		spec{program: rust, name: "mmap, deserialize, one byte of every page", op: "touch", repeat: 5},
		spec{program: golang, name: "maruel Mapped.Open, one byte of every page", op: "touch", repeat: 5},
		spec{program: python, name: "load_file, one byte of every page", op: "load_file_touch", repeat: 5},
	),
	group("Private copy in memory", models, allBytes, nothing,
		spec{program: ours, name: "Open, Load, first use of the memory", op: "copy", asked: []bar{atMost(0.5, peer{python, "load_file_clone"}), atMost(1.02)}},
		spec{program: ours, name: "the same by pread, 1 thread", op: "copy_pread_1"},
		spec{program: ours, name: "the same by pread, 2 threads", op: "copy_pread_2"},
		spec{program: ours, name: "the same by mmap, 1 thread", op: "copy_mmap_1"},
		spec{program: ours, name: "the same by O_DIRECT", op: "copy_direct"},
		spec{program: ours, name: "Open, Load, into reused memory", op: "recopy", repeat: 2, asked: []bar{
			atMost(1.1, peer{system, "read"}, peer{plainC, "pread_1m"}, peer{plainC, "pread_16m"}),
		}},
		spec{program: ours, name: "reused, by pread, 1 thread", op: "recopy_pread_1", repeat: 2},
		spec{program: ours, name: "reused, by pread, 2 threads", op: "recopy_pread_2", repeat: 2},
		spec{program: ours, name: "reused, by mmap, 1 thread", op: "recopy_mmap_1", repeat: 2},
		spec{program: ours, name: "reused, by O_DIRECT", op: "recopy_direct", repeat: 2},
		spec{program: system, name: "read(2) into a reused buffer of huge pages", op: "read", repeat: 2},
		spec{program: plainC, name: "pread, 1 MiB, into a reused buffer of huge pages", op: "pread_1m", repeat: 2},
		spec{program: plainC, name: "pread, 16 MiB, into a reused buffer of huge pages", op: "pread_16m", repeat: 2},
		spec{program: plainC, name: "mmap, memcpy into a reused buffer of huge pages", op: "map_memcpy", repeat: 2},
		spec{program: plainC, name: "memcpy, nothing read", op: "memcpy", repeat: 2},
		spec{program: plainC, name: "pread into fresh pages of 4 KiB", op: "pread_fresh"},
		spec{program: plainC, name: "pread into fresh huge pages", op: "pread_fresh_huge"},
		spec{program: plainC, name: "O_DIRECT into a reused buffer", op: "direct", repeat: 2},
		spec{program: rust, name: "mmap, deserialize, to_vec of every tensor", op: "copy"},
		spec{program: rust, name: "fs::read, deserialize", op: "read"},
		spec{program: golang, name: "maruel Mapped.Open, append of every tensor", op: "copy"},
		spec{program: python, name: "load_file, clone of every tensor", op: "load_file_clone"},
		spec{program: python, name: "load of read()", op: "load_bytes"},
		spec{program: python, name: "np.fromfile", op: "fromfile"},
		spec{program: python, name: "torch.load of a .pt", op: "torch_load", pickled: true},
		spec{program: python, name: "torch.load of a .pt, mmap", op: "torch_load_mmap", pickled: true},
	),
	group("bf16 to f32", []string{baseFile}, allBytes, nothing,
		spec{program: ours, name: "Open, ToFloat32 into reused memory", op: "widen", repeat: 2},
		spec{program: python, name: "load_file, copy_ into reused memory", op: "load_file_widen", repeat: 2},
		spec{program: python, name: "load_file, float of every tensor", op: "load_file_float"},
		spec{program: ours, name: "convert.File, read back", op: "convert", out: newFile},
		spec{program: ours, name: "convert.File, not read back", op: "convert_unread", out: newFile},
		spec{program: python, name: "load_file, float, save_file", op: "convert", out: newFile},
	),
	group("A new file", models, allBytes, newFile,
		spec{program: ours, name: "WriteFile", op: "save", asked: []bar{
			atMost(0.85, peer{python, "save_file"}), atMost(1.05, peer{system, "write"}, peer{plainC, "write"}), atMost(1.02),
		}},
		spec{program: ours, name: "WriteFile, Durable", op: "save_durable"},
		spec{program: ours, name: "WriteSharded, five shards", op: "save_sharded", out: newFolder},
		spec{program: system, name: "write(2), 16 MiB", op: "write"},
		spec{program: plainC, name: "write(2), 16 MiB", op: "write"},
		spec{program: plainC, name: "fallocate, write(2), 16 MiB", op: "write_fallocate"},
		spec{program: plainC, name: "write(2), 16 MiB, fsync", op: "write_fsync"},
		spec{program: rust, name: "serialize_to_file", op: "save"},
		spec{program: golang, name: "maruel Serialize", op: "save"},
		spec{program: python, name: "save_file", op: "save_file"},
		spec{program: python, name: "torch.save", op: "torch_save"},
	),
	group("A file in the place of an old one", models, allBytes, oldFile,
		spec{program: ours, name: "WriteFile", op: "save"},
		spec{program: ours, name: "WriteFile, Durable", op: "save_durable"},
		spec{program: rust, name: "serialize_to_file", op: "save"},
		spec{program: python, name: "save_file", op: "save_file"},
	),
)

// group completes the rows of a group.
func group(name string, inputs []string, moves volume, out outcome, rows ...spec) []spec {
	for i := range rows {
		r := &rows[i]
		r.group, r.inputs, r.moves = name, inputs, moves
		if r.out == nothing {
			r.out = out
		}
	}
	return rows
}

// marks are the bars of a row, for one input.
func (m *measured) bars(f *file) (marks []bench.Mark) {
	for _, b := range m.asked {
		mark := bench.Mark{Name: m.group + ": " + m.name + ", " + f.name, Row: m.row.ID(), Factor: b.factor}
		if b.beside == nil && m.moves != noBytes {
			if f.size < worthWeighing {
				continue
			}
			mark.Memory = f.size
		}
		for _, s := range specs {
			if s.group == m.group && slices.Contains(b.beside, peer{s.program, s.op}) {
				mark.Beside = append(mark.Beside, s.row(f.name).ID())
			}
		}
		marks = append(marks, mark)
	}
	return marks
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
