package lint

import (
	"fmt"
	"go/build"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// room is the place of a package in the house. A package imports what lives on
// lower floors, and beside it what its room lists, with the reason.
type room struct {
	floor  int
	beside map[string]string
}

// The floors, from the ground up.
const (
	ground   = iota - 1 // imports nothing of the module
	files               // formats and the closed set of operations
	machines            // what runs programs
	graphs              // what makes programs
	models              // what is computed, and on what
	loops               // what a run is
	services            // what answers others
	library             // the root package, which Go programs import
	commands            // what people start
)

// with lists rooms on the same floor that may be imported, each behind its reason.
func with(reasonAndRooms ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(reasonAndRooms); i += 2 {
		m[reasonAndRooms[i]] = reasonAndRooms[i+1]
	}
	return m
}

// house has a room for every package. Packages in an internal folder of
// another, such as backend/cpu/internal/gemm, live in that one's room.
var house = map[string]room{
	"internal/fsatomic": {floor: ground},
	"internal/linalg":   {floor: ground},
	"internal/lint":     {floor: ground},
	"internal/philox":   {floor: ground},
	"internal/fork":     {floor: ground},
	"internal/chunks":   {ground, with("internal/fork", "brings the panics of its goroutines home")},
	"internal/bytesize": {floor: ground},
	"internal/progress": {ground, with("internal/bytesize", "says how much")},
	"internal/pyjson":   {floor: ground},
	"internal/suggest":  {floor: ground},
	"internal/vec":      {ground, with("internal/philox", "draws masks of dropout")},

	"safetensors":           {floor: files},
	"safetensors/remote":    {files, with("safetensors", "opens its files")},
	"safetensors/torchfile": {files, with("safetensors", "returns its files")},
	"tensor":                {floor: files},
	"internal/quant":        {files, with("tensor", "its blocks are element types")},
	"internal/weights":      {files, with("safetensors", "opens its files", "safetensors/torchfile", "and those of PyTorch", "tensor", "names element types")},
	"tokenizer":             {floor: files},
	"tokenizer/chat":        {floor: files},
	"internal/ir":           {files, with("tensor", "values have its element types, references its conversions", "internal/quant", "moments of 8 bits are read by its maps")},
	"kernels":               {floor: files},
	"kernels/sim":           {floor: files},
	"internal/linear":       {files, with("safetensors", "keeps its models in files")},

	"backend":           {floor: machines},
	"backend/cpu":       {machines, with("backend", "is a machine")},
	"backend/cuda":      {machines, with("backend", "is a machine", "backend/gpu", "launches what that plans")},
	"backend/gpu":       {machines, with("backend", "plans for its devices")},
	"backend/metal":     {machines, with("backend", "is a machine", "backend/gpu", "launches what that plans")},
	"backend/null":      {machines, with("backend", "is a machine")},
	"backend/telemetry": {floor: machines},
	"backend/all":       {machines, with("backend/cpu", "brings in the machines of a build", "backend/cuda", "brings in the machines of a build", "backend/metal", "brings in the machines of a build", "backend/null", "brings in the machines of a build")},

	"graph/exec":        {floor: graphs},
	"graph":             {graphs, with("graph/exec", "Eval and Compile run what was built")},
	"graph/conformance": {graphs, with("graph", "builds its cases", "graph/exec", "runs them with and without each pass")},

	"internal/engine":    {models, with("internal/nn", "builds and feeds models", "internal/model", "runs one", "lora", "has adapters in slots")},
	"internal/host":      {models, with("internal/engine", "has a runtime", "internal/model", "has the weights of one", "internal/nn", "hands arrays to programs")},
	"internal/nn":        {floor: models},
	"internal/model":     {models, with("internal/nn", "is built with it", "internal/data", "says where the documents of a batch are read, and what of")},
	"internal/sentence":  {models, with("internal/nn", "builds vectors with it", "internal/data", "marks the texts of a batch")},
	"internal/model/hub": {floor: models},
	"lora":               {models, with("internal/nn", "is an nn.Adapter")},
	"internal/data":      {floor: models},
	"internal/inspect":   {floor: models},

	"internal/diffusion/flow":   {floor: models},
	"internal/model/original":   {floor: files},
	"internal/diffusion/single": {models, with("internal/model", "opens one", "internal/diffusion/dit", "knows the architectures")},
	"internal/lora/dialects":    {models, with("lora", "is what files are made of and become", "internal/nn", "finds weights that an adapter begins with")},

	"internal/diffusion/dit": {models, with("internal/model", "registers architectures", "internal/nn", "builds them", "internal/data", "fills batches")},
	"internal/diffusion/vae": {floor: loops},

	"internal/diffusion/feed": {models, with("internal/diffusion/dit", "fills its batches", "internal/diffusion/flow", "draws noise and its levels", "internal/data", "gives batches", "internal/data/cache", "reads samples", "internal/nn", "names the axis of tokens")},

	"internal/data/cache":       {floor: models},
	"internal/data/imagefolder": {models, with("internal/data/cache", "checks the cache of a folder")},
	"internal/data/picture":     {floor: models},

	"internal/diffusion": {loops, with("internal/diffusion/vae", "makes pictures of latents")},

	"internal/train/schedule":          {floor: loops},
	"internal/train/events":            {floor: loops},
	"train/config":                     {loops, with("internal/train/schedule", "checks its names")},
	"internal/train/session":           {floor: loops},
	"internal/train":                   {loops, with("train/config", "runs one", "internal/train/events", "records", "internal/train/schedule", "follows one")},
	"internal/train/task":              {loops, with("internal/train/task/text", "brings in tasks", "internal/train/task/flowmatching", "brings in a task")},
	"internal/train/task/text":         {loops, with("internal/train", "is a task of runs", "internal/train/events", "names metrics", "train/config", "has the keys of tasks")},
	"internal/train/task/flowmatching": {loops, with("internal/train", "is a task of runs", "internal/train/events", "records samples", "train/config", "has the keys of the task", "internal/diffusion", "opens pipelines", "internal/diffusion/vae", "has options of autoencoders")},
	"internal/generate/sample":         {floor: loops},
	"internal/generate/constrain":      {floor: loops},
	"internal/generate":                {loops, with("internal/generate/sample", "draws tokens", "internal/generate/constrain", "keeps an answer to a schema")},
	"internal/embed":                   {floor: loops},
	"internal/classify":                {floor: loops},
	"internal/merge":                   {floor: loops},
	"internal/convert":                 {floor: loops},
	"internal/serve/keys":              {floor: ground},
	"internal/serve/pages":             {floor: loops},
	"internal/serve/share":             {floor: loops},
	"internal/serve/batching":          {loops, with("internal/generate", "says what an answer is", "internal/serve/pages", "has the keys and values of texts there", "internal/serve/share", "lets training have its part of the time")},
	"internal/serve/tuning":            {loops, with("internal/train", "makes its runs", "train/config", "is what a job is as a run", "internal/train/events", "reads what a run has recorded")},
	"internal/serve/tools":             {loops, with("internal/generate/constrain", "asks whether a schema can be kept to")},

	"serve":                  {services, with("internal/serve/webpage", "shows it at /")},
	"internal/serve/metrics": {floor: services},
	"internal/serve/tinker":  {floor: services},
	"internal/serve/webpage": {floor: services},
	"internal/serve/traces":  {floor: services},

	".": {floor: library},

	"cmd/lorafuse/cli":  {floor: commands},
	"cmd/lorafuse":      {commands, with("cmd/lorafuse/cli", "is its main")},
	"cmd/gpubench":      {floor: commands},
	"cmd/gpucheck":      {floor: commands},
	"examples/godoc":    {floor: commands},
	"examples/library":  {floor: commands},
	"examples/linear":   {floor: commands},
	"examples/pictures": {floor: commands},

	// Tools of those who work on the house; see TestToolsStayApart.
	"dev/load":             {floor: ground},
	"dev/testhub":          {floor: ground},
	"dev/soak":             {floor: ground},
	"dev/bench":            {floor: ground},
	"dev/cputime":          {floor: ground},
	"dev/bench/page":       {ground, with("dev/bench", "shows its results", "internal/suggest", "finds the table that was meant")},
	"dev/bench/checkpoint": {files, with("safetensors", "writes files", "tensor", "rounds weights")},
	"dev/bench/peer":       {floor: machines},
	"dev/testdevice":       {machines, with("backend", "opens one", "backend/all", "which the build has")},
	"dev/gputest":          {graphs, with("graph", "computes on the device and by the reference", "graph/exec", "runs programs")},
	"dev/bench/program":    {graphs, with("graph", "compiles graphs", "graph/exec", "runs them")},
	"dev/bench/kernels":    {floor: models},
	"dev/bench/large":      {loops, with("internal/generate", "is measured", "internal/serve/batching", "is measured", "internal/train", "is measured", "internal/train/task/flowmatching", "is measured")},
	"dev/bench/layer":      {floor: models},
	"dev/bench/load":       {loops, with("internal/convert", "is measured")},
	"dev/bench/decode":     {loops, with("internal/generate", "is measured")},
	"dev/bench/upload":     {floor: loops},
	"dev/bench/step":       {loops, with("internal/train", "is measured", "internal/train/task", "has the tasks of runs", "train/config", "is what it is measured with")},
	"dev/gpucheck":         {floor: loops},
}

// roomOf finds the room of a package: its own, or that of the package whose
// internals it is part of.
func roomOf(rooms map[string]room, pkg string) (string, bool) {
	if _, ok := rooms[pkg]; ok {
		return pkg, true
	}
	parent, _, ok := strings.Cut(pkg, "/internal/")
	if !ok {
		return "", false
	}
	_, ok = rooms[parent]
	return parent, ok
}

// floors finds imports that go up, or sideways without a reason, packages
// without a room, and rooms and reasons without use.
func (r *repo) floors(rooms map[string]room) (findings []string) {
	used := map[string]bool{}
	for pkg, sources := range r.packages() {
		from, ok := roomOf(rooms, pkg)
		if !ok {
			findings = append(findings, pkg+": has no room in the house (internal/lint/house_test.go)")
			continue
		}
		used[from] = true
		for _, f := range sources {
			for _, imp := range f.imports() {
				to, ok := own(imp)
				if !ok {
					continue
				}
				if to, ok = roomOf(rooms, to); !ok || to == from {
					continue // another finding names it
				}
				_, beside := rooms[from].beside[to]
				if beside {
					used[from+" → "+to] = true
				}
				if !beside && rooms[to].floor >= rooms[from].floor {
					findings = append(findings, fmt.Sprintf("%s: %s, on floor %d, imports %s, on floor %d", f.path, from, rooms[from].floor, to, rooms[to].floor))
				}
			}
		}
	}
	for name, room := range rooms {
		if !used[name] {
			findings = append(findings, name+": has a room in the house, but no package")
		}
		for other := range room.beside {
			if used[name] && !used[name+" → "+other] && slices.ContainsFunc(r.packages()[name], func(f *source) bool { return len(f.imports()) > 0 }) {
				findings = append(findings, fmt.Sprintf("%s: need not import %s, as the house says it may", name, other))
			}
		}
	}
	return findings
}

func TestFloors(t *testing.T) { none(t, theRepo(t).floors(house)) }

// folders are the top-level folders and those of internal, lowest first; internal itself
// has the helpers that import nothing. Packages of a folder import packages of that folder
// and of earlier ones only, whatever their floors are. A name in both places is one folder.
var folders = []string{
	"internal", "safetensors", "tensor", "kernels", "tokenizer",
	"quant", "weights", "linear", "ir", "data", "inspect", "convert",
	"backend", "graph", "nn", "model", "sentence", "lora", "merge",
	"engine", "host", "embed", "classify", "generate", "diffusion",
	"train", "serve", "dev", ".", "cmd", "examples",
}

// folderOf returns the folder of a package in the order.
func folderOf(pkg string, order []string) string {
	name, below, _ := strings.Cut(pkg, "/")
	if in, _, _ := strings.Cut(below, "/"); name == "internal" && slices.Contains(order, in) {
		return in
	}
	return name
}

// upward finds imports of packages whose top-level folder comes later in order, and
// folders that order lacks, or has without a package.
func (r *repo) upward(order []string) (findings []string) {
	found := map[string]bool{}
	for pkg, sources := range r.packages() {
		from := folderOf(pkg, order)
		at := slices.Index(order, from)
		if found[from] = true; at < 0 {
			findings = append(findings, pkg+": folder "+from+" has no place in the order of folders (internal/lint/house_test.go)")
			continue
		}
		for _, f := range sources {
			for _, imp := range f.imports() {
				pkg, ok := own(imp)
				to := folderOf(pkg, order)
				if ok && slices.Index(order, to) > at {
					findings = append(findings, fmt.Sprintf("%s: folder %s imports %s, of the higher folder %s", f.path, from, pkg, to))
				}
			}
		}
	}
	for _, name := range order {
		if !found[name] {
			findings = append(findings, name+": is in the order of folders, but has no package")
		}
	}
	return findings
}

func TestFoldersDependDownward(t *testing.T) { none(t, theRepo(t).upward(folders)) }

// Formulas are built without knowing a device: engine has those.
func TestFormulasKnowNoDevice(t *testing.T) {
	r := theRepo(t)
	for _, pkg := range []string{"internal/nn", "internal/model"} {
		require.NotEmpty(t, r.packages()[pkg])
		for _, f := range r.packages()[pkg] {
			for _, imp := range f.imports() {
				require.False(t, strings.HasPrefix(imp+"/", module+"/backend/"), "%s imports %s", f.path, imp)
			}
		}
	}
}

// tools is the folder of what measures and checks, and computes for no user.
const tools = "dev"

// toolUsers are the packages outside of tools that may import it, with the reason.
var toolUsers = map[string]string{
	"cmd/lorafuse/cli": "has the command lorafuse bench",
	"cmd/gpubench":     "measures the GPU for it",
	"cmd/gpucheck":     "is its main",
}

// strays finds imports of tools by packages that do without; tests may have them.
func (r *repo) strays(users map[string]string) (findings []string) {
	used := map[string]bool{}
	for pkg, sources := range r.packages() {
		if strings.HasPrefix(pkg+"/", tools+"/") {
			continue
		}
		for _, f := range sources {
			for _, imp := range f.imports() {
				to, ok := own(imp)
				if !ok || !strings.HasPrefix(to+"/", tools+"/") {
					continue
				}
				if used[pkg] = true; users[pkg] == "" {
					findings = append(findings, fmt.Sprintf("%s: imports %s, a tool, which only tests and %s may", f.path, to, strings.Join(slices.Sorted(maps.Keys(users)), ", ")))
				}
			}
		}
	}
	for pkg := range users {
		if !used[pkg] {
			findings = append(findings, pkg+": need not import "+tools+", as the house says it may")
		}
	}
	return findings
}

func TestToolsStayApart(t *testing.T) { none(t, theRepo(t).strays(toolUsers)) }

// foreign finds imports of pkg that are neither of the standard library nor
// below one of the allowed paths.
func (r *repo) foreign(pkg string, allowed ...string) (findings []string) {
	for _, f := range r.packages()[pkg] {
		for _, imp := range f.imports() {
			if !standard(imp) && !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(imp+"/", a+"/") }) {
				findings = append(findings, fmt.Sprintf("%s: imports %s; allowed: the standard library %s", f.path, imp, strings.Join(allowed, ", ")))
			}
		}
	}
	return findings
}

// The reader of the file format can be taken alone.
func TestSafetensorsStandsAlone(t *testing.T) {
	r := theRepo(t)
	require.NotEmpty(t, r.packages()["safetensors"])
	none(t, r.foreign("safetensors", "golang.org/x/sys"))
	for _, pkg := range []string{"safetensors/remote", "safetensors/torchfile"} {
		require.NotEmpty(t, r.packages()[pkg])
		none(t, r.foreign(pkg, module+"/safetensors"))
	}
}

// cgo finds files that a build without tags compiles with cgo.
func (r *repo) cgo() (findings []string) {
	for _, f := range r.files {
		if !slices.Contains(f.imports(), "C") {
			continue
		}
		for _, system := range []string{"linux", "windows"} { // on macOS, Metal is part of a build with cgo
			ctx := build.Default
			ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled, ctx.BuildTags = system, "amd64", true, nil
			ctx.OpenFile = func(name string) (io.ReadCloser, error) { return r.fsys.Open(name) }
			ctx.JoinPath = path.Join
			if match, err := ctx.MatchFile(f.pkg, path.Base(f.path)); err != nil || match {
				findings = append(findings, fmt.Sprintf("%s: imports C in the default build for %s", f.path, system))
			}
		}
	}
	return findings
}

func TestNoCgo(t *testing.T) { none(t, theRepo(t).cgo()) }

// houseTable is the house in Markdown. What lives in a room is the first
// sentence of its package comment.
func (r *repo) houseTable(rooms map[string]room) string {
	var b strings.Builder
	b.WriteString("| floor | package | what it is | beside lower floors it imports |\n|---|---|---|---|\n")
	names := slices.SortedFunc(maps.Keys(rooms), func(x, y string) int {
		if rooms[x].floor != rooms[y].floor {
			return rooms[x].floor - rooms[y].floor
		}
		return strings.Compare(x, y)
	})
	pkgs := r.packages()
	for _, name := range names {
		floor := fmt.Sprint(rooms[name].floor)
		if rooms[name].floor == ground {
			floor = "–"
		}
		var beside []string
		for _, other := range slices.Sorted(maps.Keys(rooms[name].beside)) {
			beside = append(beside, fmt.Sprintf("`%s` (%s)", other, rooms[name].beside[other]))
		}
		what := strings.NewReplacer("[", "", "]", "", "|", `\|`).Replace(synopsis(pkgs[name]))
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", floor, name, what, strings.Join(beside, ", "))
	}
	return b.String()
}
