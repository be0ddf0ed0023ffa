package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// table defines one of the five tables.
type table struct {
	name   string // name that selects it
	title  string
	about  string // the contents of its cells
	groups []group
}

// group is a group of rows that a suite measures.
type group struct {
	suite  string
	name   string // of the rows' group
	title  string // prefix of row names; empty if these suffice
	inputs string // expression for the inputs; empty for all
	unit   unit
	rows   []entry // in the order of the table
}

// entry is a table line: a row of lorafuse, and the rows of the same group and input for comparison.
type entry struct {
	program, name string
	beside        []string // as "program: name"; the fastest counts
	cost          bool     // the cell shows the relative time instead of the speed
	// rounds marks rows that differ from their f32 rows only on machines that gain from bf16. On other machines,
	// only rows with stays are kept, for their memory, without rows of other programs.
	rounds, stays bool
}

// unit is the first quantity in a cell.
type unit int

const (
	tokens       unit = iota // tokens a second
	operations               // GFLOP/s
	milliseconds             // median
	seconds
	bytes // GB/s
)

// Names of programs in rows.
const (
	ours  = "lorafuse"
	torch = "torch + PEFT"
)

// called maps programs to their names in tables.
var called = map[string]string{
	"numpy": "OpenBLAS", "rust": "Rust", "python": "Python", "go": "maruel/safetensors", "c": "C", "lorafuse: frozen layer alone": "the frozen layer",
}

// same returns entries that are compared with rows of the same name.
func same(names []string, programs ...string) (entries []entry) {
	for _, name := range names {
		e := entry{program: ours, name: name, rounds: rounds(name)}
		for _, p := range programs {
			e.beside = append(e.beside, p+": "+name)
		}
		entries = append(entries, e)
	}
	return entries
}

// rounds reports whether the name is of a row whose products may be rounded to bf16.
func rounds(name string) bool {
	return strings.Contains(name, "bf16") && !strings.Contains(name, "bf16 weights")
}

// layers returns the entries for layers with adapters.
func layers(bf16 bool) (entries []entry) {
	for _, r := range []int{8, 16, 64} {
		for _, dropout := range []string{"", ", dropout 0.1"} {
			entries = append(entries, entry{
				program: ours, name: fmt.Sprintf("LoRA r=%d%s", r, dropout), beside: []string{ours + ": frozen layer alone"}, cost: true, rounds: bf16,
			})
		}
	}
	return entries
}

// tables are the five, in their order.
var tables = []table{
	{
		name: "step", title: "Training steps",
		about: "Tokens per second of a training step with adapters on all linear layers except the head, and in parentheses the share of the peak, counting 4 operations per weight and token, plus attention. Then the peak memory of the process, and the speed relative to the other program at the same precision.",
		groups: []group{
			{suite: "step", name: "Training step", title: "step", unit: tokens, rows: slices.Concat(
				same([]string{"f32"}, torch), stay(same([]string{"bf16"}, torch, "torch.compile + PEFT")),
				stay(same([]string{"f32, int8 weights", "f32, nf4 weights"})))},
			{suite: "step", name: "From the start of the process to its first step", title: "start to first step", unit: seconds,
				rows: slices.Concat(same([]string{"f32"}, torch), stay(same([]string{"bf16"}, torch)))},
		},
	},
	{
		name: "decode", title: "Decoding",
		about: "Tokens per second, and in parentheses the share of the peak: memory bandwidth for one token, which caches can exceed, and arithmetic for a prompt. Then the speed relative to the other program.",
		groups: []group{
			{suite: "decode", name: "One token", title: "one token", unit: tokens, rows: []entry{
				{program: ours, name: "merged, f32", beside: []string{"llama.cpp: bf16", "transformers: merged, bf16"}},
				{program: ours, name: "adapter r=16, not merged, f32", beside: []string{"transformers: adapter r=16, not merged, bf16"}},
				{program: ours, name: "merged, int8 weights", beside: []string{"llama.cpp: q8_0"}},
				{program: ours, name: "merged, nf4 weights"},
			}},
			{suite: "decode", name: "One token", unit: bytes, rows: []entry{{program: "memory", name: "reading the weights alone"}}},
			{suite: "decode", name: "Reading a prompt", title: "a prompt", unit: tokens, rows: []entry{
				{program: ours, name: "merged, f32", beside: []string{"llama.cpp: bf16"}},
				{program: ours, name: "merged, bf16", beside: []string{"llama.cpp: bf16", "transformers: merged, bf16"}, rounds: true},
			}},
		},
	},
	{
		name: "products", title: "Products and attention",
		about: "GFLOP/s, and in parentheses the share of the peak of the same number of threads; then the speed relative to the fastest other program. x is [m,k], y [m,n]; attention is causal over n tokens of one sequence.",
		groups: []group{
			{suite: "kernels", name: "x·Wᵀ", title: "x·Wᵀ", unit: operations, inputs: `m=(8|64|512|2048) k=2048 n=2048|m=(64|512|2048) k=2048 n=5632`, rows: products},
			{suite: "kernels", name: "dy·W", title: "dy·W", unit: operations, inputs: `m=(64|512|2048) k=5632 n=2048`, rows: products},
			{suite: "kernels", name: "Attention", title: "attention", unit: operations, rows: same([]string{"forward, f32", "backward, f32", "forward, bf16", "backward, bf16"}, "torch")},
		},
	},
	{
		name: "adapters", title: "Adapters",
		about: "Layers with an adapter, forward and backward: the time, and the time relative to the frozen layer. Multiplications of an adapter: GFLOP/s, the share of the peak, and the speed relative to the fastest other program.",
		groups: []group{
			{suite: "layer", name: "Forward and backward, f32 × bf16 weights", title: "layer, f32", unit: milliseconds, inputs: oneLayer, rows: layers(false)},
			{suite: "layer", name: "Forward and backward, bf16", title: "layer, bf16", unit: milliseconds, inputs: oneLayer, rows: layers(true)},
			{suite: "kernels", name: "LoRA x·Aᵀ", title: "x·Aᵀ", unit: operations, rows: adapters},
			{suite: "kernels", name: "LoRA h·Bᵀ", title: "h·Bᵀ", unit: operations, rows: adapters},
			{suite: "kernels", name: "LoRA dA = dhᵀ·x", title: "dA = dhᵀ·x", unit: operations, rows: adapters},
			{suite: "kernels", name: "LoRA dB = dyᵀ·h", title: "dB = dyᵀ·h", unit: operations, rows: adapters},
		},
	},
	{
		name: "files", title: "Files",
		about: "Milliseconds in separate processes with the files in the page cache, and the speed relative to the fastest other program for the same operation.",
		groups: []group{
			{suite: "load", name: "Open and index, without a copy", unit: milliseconds, rows: []entry{
				{program: ours, name: "Open, Views", beside: []string{"rust: mmap, deserialize, tensors", "go: maruel Mapped.Open", "python: load_file"}},
			}},
			{suite: "load", name: "Header", unit: milliseconds, title: "header", rows: []entry{
				{program: ours, name: "FromBytes", beside: []string{"rust: SafeTensors::deserialize", "rust: SafeTensors::read_metadata", "go: maruel Parse", "python: safe_open"}},
			}},
			{suite: "load", name: "Every page resident", unit: milliseconds, rows: []entry{
				{program: ours, name: "Open, Populate", beside: []string{
					"system calls: mmap with MAP_POPULATE", "c: mmap with MAP_POPULATE", "c: mmap, MADV_POPULATE_READ",
					"rust: mmap, deserialize, one byte of every page", "python: load_file, one byte of every page",
				}},
			}},
			{suite: "load", name: "Private copy in memory", unit: milliseconds, rows: []entry{
				{program: ours, name: "Open, Load, into reused memory", beside: []string{
					"system calls: read(2) into a reused buffer of huge pages", "c: pread, 1 MiB, into a reused buffer of huge pages", "c: pread, 16 MiB, into a reused buffer of huge pages",
				}},
				{program: ours, name: "Open, Load, first use of the memory", beside: []string{
					"c: pread into fresh huge pages", "rust: mmap, deserialize, to_vec of every tensor", "python: load_file, clone of every tensor",
				}},
			}},
			{suite: "load", name: "bf16 to f32", unit: milliseconds, title: "bf16 to f32", rows: []entry{
				{program: ours, name: "Open, ToFloat32 into reused memory", beside: []string{"python: load_file, copy_ into reused memory"}},
			}},
			{suite: "load", name: "A new file", unit: milliseconds, title: "a new file", rows: []entry{
				{program: ours, name: "WriteFile", beside: []string{"system calls: write(2), 16 MiB", "c: write(2), 16 MiB", "rust: serialize_to_file", "python: save_file"}},
				{program: ours, name: "WriteFile, Durable", beside: []string{"c: write(2), 16 MiB, fsync"}},
			}},
		},
	},
}

// oneLayer is the layer for which adapters are shown.
const oneLayer = `m=2048 k=2048 n=2048`

var (
	products = same([]string{"f32", "f32 × bf16 weights", "bf16"}, "torch", "numpy")
	adapters = same([]string{"f32", "bf16"}, "torch", "numpy")
)

// stay keeps entries on machines that gain nothing by bf16.
func stay(entries []entry) []entry {
	for i := range entries {
		entries[i].stays = true
	}
	return entries
}

// Tables lists the names of the tables, in their order.
func Tables() []string {
	var names []string
	for i := range tables {
		names = append(names, tables[i].name)
	}
	return names
}

// Check refuses names that no table has.
func Check(names []string) error {
	for _, name := range names {
		if all := Tables(); !slices.Contains(all, name) {
			return fmt.Errorf("found table %q, expected some of %s%s", name, strings.Join(all, ", "), suggest.DidYouMean(name, all))
		}
	}
	return nil
}

// Only returns the expression for the rows that a suite has to measure for tables, including their competitors, or nil
// if there are none. If the machine does not gain from bf16, it omits rows that would be the same and competitors that
// may be very slow. allInputs adds sizes that no table shows.
func Only(suite string, names []string, bf16, allInputs bool) *regexp.Regexp {
	var parts []string
	for i := range tables {
		for j := range tables[i].groups {
			if g := &tables[i].groups[j]; g.suite == suite && slices.Contains(names, tables[i].name) {
				if p := g.pattern(bf16, allInputs); p != "" {
					parts = append(parts, p)
				}
			}
		}
	}
	if parts == nil {
		return nil
	}
	return regexp.MustCompile(`^(?:` + strings.Join(parts, "|") + `)$`)
}

func (g *group) pattern(bf16, allInputs bool) string {
	var rows []string
	add := func(row string) {
		if row = regexp.QuoteMeta(row); !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	for i := range g.rows {
		e := &g.rows[i]
		if e.rounds && !bf16 && !e.stays {
			continue
		}
		add(e.program + ": " + e.name)
		for _, other := range e.beside {
			if !e.rounds || bf16 {
				add(other)
			}
		}
	}
	if rows == nil {
		return ""
	}
	inputs := g.inputs
	if inputs == "" || allInputs {
		inputs = ".*"
	}
	return fmt.Sprintf("%s: (?:%s), (?:%s)", regexp.QuoteMeta(g.name), strings.Join(rows, "|"), inputs)
}
