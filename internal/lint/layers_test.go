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

// placement is the layer of a package. A package imports packages of lower layers, and
// those of its own layer that are listed with a reason.
type placement struct {
	layer int
	peers map[string]string // reasons by package
}

// The layers, lowest first.
const (
	ground   = iota - 1 // general packages
	files               // file formats, operations
	machines            // devices
	graphs              // graphs and their compilation
	models              // models, adapters, data
	loops               // training and generation
	services            // servers
	library             // the root package, which Go programs import
	commands            // programs
)

// with returns the peers of a package from pairs of a package and the reason for importing it.
func with(packagesAndReasons ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(packagesAndReasons); i += 2 {
		m[packagesAndReasons[i]] = packagesAndReasons[i+1]
	}
	return m
}

// layers has the placement of every package. Packages in an internal folder of another
// package, such as backend/cpu/internal/gemm, belong to that package.
var layers = map[string]placement{
	"internal/fsatomic": {layer: ground},
	"internal/linalg":   {layer: ground},
	"internal/lint":     {layer: ground},
	"internal/philox":   {layer: ground},
	"internal/fork":     {layer: ground},
	"internal/chunks":   {ground, with("internal/fork", "recovers panics of its goroutines")},
	"internal/bytesize": {layer: ground},
	"internal/progress": {ground, with("internal/bytesize", "formats sizes")},
	"internal/pyjson":   {layer: ground},
	"internal/suggest":  {layer: ground},
	"internal/vec":      {ground, with("internal/philox", "draws dropout masks")},

	"safetensors":           {layer: files},
	"safetensors/remote":    {files, with("safetensors", "opens its files")},
	"safetensors/torchfile": {files, with("safetensors", "returns its files")},
	"tensor":                {layer: files},
	"internal/quant":        {files, with("tensor", "its blocks are element types")},
	"internal/gguf":         {files, with("safetensors", "maps files", "tensor", "converts elements", "internal/quant", "decodes blocks")},
	"internal/weights":      {files, with("safetensors", "opens its files", "safetensors/torchfile", "opens PyTorch files", "internal/gguf", "opens GGUF files", "tensor", "uses element types", "internal/quant", "writes blocks of GPTQ and AWQ")},
	"tokenizer":             {layer: files},
	"tokenizer/chat":        {layer: files},
	"internal/ir":           {files, with("tensor", "uses element types and conversions", "internal/quant", "decodes 8-bit moments")},
	"kernels":               {layer: files},
	"kernels/sim":           {layer: files},
	"dist":                  {layer: files},
	"dist/local":            {files, with("dist", "implements its World")},
	"dist/mpi":              {files, with("dist", "implements its World")},
	"internal/ranks":        {files, with("dist", "exchanges messages")},
	"internal/linear":       {files, with("safetensors", "stores its models")},

	"backend":           {layer: machines},
	"backend/cpu":       {machines, with("backend", "implements a device")},
	"backend/cuda":      {machines, with("backend", "implements a device", "backend/gpu", "runs planned launches")},
	"backend/gpu":       {machines, with("backend", "plans for devices")},
	"backend/metal":     {machines, with("backend", "implements a device", "backend/gpu", "runs planned launches")},
	"backend/null":      {machines, with("backend", "implements a device")},
	"backend/telemetry": {layer: machines},
	"backend/all":       {machines, with("backend/cpu", "registers it", "backend/cuda", "registers it", "backend/metal", "registers it", "backend/null", "registers it")},

	"graph/exec":        {layer: graphs},
	"graph":             {graphs, with("graph/exec", "compiles and runs graphs")},
	"graph/conformance": {graphs, with("graph", "builds its cases", "graph/exec", "runs them with and without each pass")},

	"internal/engine":         {models, with("internal/nn", "builds and feeds models", "internal/model", "runs models", "lora", "holds adapters in slots")},
	"internal/host":           {models, with("internal/engine", "runs programs", "lora", "holds adapters in slots", "internal/model", "loads weights", "internal/nn", "passes arrays to programs")},
	"internal/nn":             {layer: models},
	"internal/model":          {models, with("internal/nn", "builds graphs", "internal/data", "defines batches")},
	"internal/sentence":       {models, with("internal/nn", "builds pooling graphs", "internal/data", "defines batches")},
	"internal/model/hub":      {models, with("internal/model/llamacpp", "makes folders of GGUF files")},
	"internal/model/llamacpp": {models, with("internal/model", "describes models")},
	"lora":                    {models, with("internal/nn", "implements nn.Adapter")},
	"internal/data":           {layer: models},
	"internal/inspect":        {layer: models},
	"internal/catalog":        {models, with("internal/model", "lists classes", "internal/model/llamacpp", "lists classes", "lora", "knows default targets")},

	"internal/diffusion/flow":   {layer: models},
	"internal/model/original":   {layer: files},
	"internal/diffusion/single": {models, with("internal/model", "opens models", "internal/diffusion/dit", "knows the architectures")},
	"internal/lora/dialects":    {models, with("lora", "converts adapters", "internal/nn", "lists weights", "internal/model", "describes models", "internal/model/llamacpp", "names tensors")},

	"internal/diffusion/dit": {models, with("internal/model", "registers architectures", "internal/nn", "builds graphs", "internal/data", "fills batches")},
	"internal/diffusion/vae": {layer: loops},

	"internal/diffusion/feed": {models, with("internal/diffusion/dit", "fills its batches", "internal/diffusion/flow", "draws noise and noise levels", "internal/data", "defines batches", "internal/data/cache", "reads samples", "internal/nn", "names axes")},

	"internal/data/cache":       {layer: models},
	"internal/data/imagefolder": {models, with("internal/data/cache", "checks the cache of a folder", "internal/data/picture", "decodes images")},
	"internal/data/picture":     {layer: models},

	"internal/diffusion": {loops, with("internal/diffusion/vae", "decodes latents")},

	"internal/train/schedule":          {layer: loops},
	"internal/train/events":            {layer: loops},
	"train/config":                     {loops, with("internal/train/schedule", "validates schedule names")},
	"train/config/migrate":             {loops, with("train/config", "checks what it writes")},
	"internal/train/trainer":           {loops, with("internal/train/events", "names metrics")},
	"internal/train/session":           {loops, with("internal/train/trainer", "takes steps")},
	"internal/train":                   {loops, with("train/config", "runs configurations", "internal/train/events", "records metrics", "internal/train/schedule", "computes learning rates", "internal/train/trainer", "takes steps")},
	"internal/train/task":              {loops, with("internal/train/task/text", "registers tasks", "internal/train/task/flowmatching", "registers a task")},
	"internal/train/task/text":         {loops, with("internal/train", "implements a task", "internal/generate", "generates samples", "internal/train/trainer", "declares losses", "internal/train/events", "names metrics", "train/config", "reads task keys")},
	"internal/train/task/flowmatching": {loops, with("internal/train", "implements a task", "internal/train/trainer", "declares a loss", "internal/train/events", "records samples", "train/config", "reads task keys", "internal/diffusion", "opens pipelines", "internal/diffusion/vae", "passes autoencoder options")},
	"internal/generate/sample":         {layer: loops},
	"internal/generate/constrain":      {layer: loops},
	"internal/generate":                {loops, with("internal/generate/sample", "samples tokens", "internal/generate/constrain", "enforces schemas")},
	"internal/embed":                   {layer: loops},
	"internal/classify":                {layer: loops},
	"internal/pretrained":              {loops, with("internal/classify", "opens classifiers", "internal/generate", "makes options", "internal/generate/constrain", "applies grammars")},
	"internal/quickstart":              {loops, with("train/config", "chooses settings")},
	"internal/merge":                   {layer: loops},
	"internal/convert":                 {layer: loops},
	"internal/serve/keys":              {layer: ground},
	"internal/serve/web":               {layer: files},
	"internal/serve/store":             {layer: files},
	"internal/serve/pages":             {layer: loops},
	"internal/serve/share":             {layer: loops},
	"internal/serve/batching":          {loops, with("internal/generate", "builds answers", "internal/generate/sample", "chooses among candidates", "internal/serve/pages", "allocates KV cache pages", "internal/serve/share", "schedules training")},
	"internal/serve/tuning":            {loops, with("internal/train", "runs jobs", "train/config", "configures jobs", "internal/train/events", "reads metrics of runs")},
	"internal/serve/tools":             {loops, with("internal/generate/constrain", "checks schemas")},

	"serve":                  {services, with("internal/serve/webpage", "serves it at /")},
	"internal/serve/metrics": {layer: services},
	"internal/serve/tinker":  {layer: services},
	"internal/serve/webpage": {layer: services},
	"internal/serve/traces":  {layer: services},
	"internal/serve/service": {services, with("serve", "is what it offers", "internal/serve/metrics", "counts requests", "internal/serve/tinker", "is what it offers", "internal/serve/traces", "records requests")},

	".": {layer: library},

	"cmd/lorafuse/cli":  {layer: commands},
	"cmd/lorafuse":      {commands, with("cmd/lorafuse/cli", "runs its commands")},
	"cmd/gpubench":      {layer: commands},
	"cmd/gpucheck":      {layer: commands},
	"examples/godoc":    {layer: commands},
	"examples/library":  {layer: commands},
	"examples/linear":   {layer: commands},
	"examples/pictures": {layer: commands},

	// Development tools; see TestToolsStayApart.
	"dev/draws":            {layer: ground},
	"dev/load":             {layer: ground},
	"dev/testhub":          {layer: ground},
	"dev/soak":             {layer: ground},
	"dev/bench":            {layer: ground},
	"dev/cputime":          {layer: ground},
	"dev/bench/page":       {ground, with("dev/bench", "renders results", "internal/suggest", "suggests table names")},
	"dev/bench/checkpoint": {files, with("safetensors", "writes files", "tensor", "converts weights")},
	"dev/bench/peer":       {layer: machines},
	"dev/disttest":         {files, with("dist", "tests its Worlds")},
	"dev/testdevice":       {machines, with("backend", "opens devices", "backend/all", "registers backends")},
	"dev/gputest":          {graphs, with("graph", "computes on devices and by reference", "graph/exec", "runs programs")},
	"dev/bench/program":    {graphs, with("graph", "compiles graphs", "graph/exec", "runs them")},
	"dev/bench/kernels":    {layer: models},
	"dev/bench/large":      {loops, with("internal/generate", "measures it", "internal/serve/batching", "measures it", "internal/train", "measures it", "internal/train/task/flowmatching", "measures it")},
	"dev/bench/layer":      {layer: models},
	"dev/bench/load":       {layer: loops},
	"dev/bench/decode":     {loops, with("internal/generate", "measures it")},
	"dev/bench/upload":     {layer: loops},
	"dev/bench/plan":       {loops, with("internal/serve/batching", "plans its steps", "internal/train/trainer", "plans its passes", "internal/train/task/flowmatching", "plans its loss", "internal/diffusion/vae", "plans autoencoders")},
	"dev/bench/step":       {loops, with("internal/train", "measures it", "internal/train/task", "registers tasks", "train/config", "configures runs")},
	"dev/gpucheck":         {layer: loops},
}

// placementOf returns the package whose placement applies to pkg: pkg itself, or the package
// that contains it as an internal package.
func placementOf(layers map[string]placement, pkg string) (string, bool) {
	if _, ok := layers[pkg]; ok {
		return pkg, true
	}
	parent, _, ok := strings.Cut(pkg, "/internal/")
	if !ok {
		return "", false
	}
	_, ok = layers[parent]
	return parent, ok
}

// misplaced reports imports of higher layers, imports within a layer that are not listed,
// packages without a placement, and unused placements and reasons.
func (r *repo) misplaced(layers map[string]placement) (findings []string) {
	used := map[string]bool{}
	for pkg, sources := range r.packages() {
		from, ok := placementOf(layers, pkg)
		if !ok {
			findings = append(findings, pkg+": has no layer (internal/lint/layers_test.go)")
			continue
		}
		used[from] = true
		for _, f := range sources {
			for _, imp := range f.imports() {
				to, ok := own(imp)
				if !ok {
					continue
				}
				if to, ok = placementOf(layers, to); !ok || to == from {
					continue // reported for to itself
				}
				_, peer := layers[from].peers[to]
				if peer {
					used[from+" → "+to] = true
				}
				if !peer && layers[to].layer >= layers[from].layer {
					findings = append(findings, fmt.Sprintf("%s: %s in layer %d imports %s in layer %d", f.path, from, layers[from].layer, to, layers[to].layer))
				}
			}
		}
	}
	for name, p := range layers {
		if !used[name] {
			findings = append(findings, name+": has a layer, but no package")
		}
		for other := range p.peers {
			if used[name] && !used[name+" → "+other] && slices.ContainsFunc(r.packages()[name], func(f *source) bool { return len(f.imports()) > 0 }) {
				findings = append(findings, fmt.Sprintf("%s: does not import %s, which its peers list", name, other))
			}
		}
	}
	return findings
}

func TestLayers(t *testing.T) { none(t, theRepo(t).misplaced(layers)) }

// folders are the top-level folders and those of internal, lowest first; internal itself
// holds general packages. Packages of a folder import only packages of that folder and of
// earlier ones, whatever their layers are. A name in both places is one folder.
var folders = []string{
	"internal", "safetensors", "tensor", "kernels", "tokenizer", "dist", "ranks",
	"quant", "gguf", "weights", "linear", "ir", "data", "inspect", "convert",
	"backend", "graph", "nn", "model", "sentence", "lora", "merge", "catalog",
	"engine", "host", "embed", "classify", "generate", "pretrained", "diffusion",
	"train", "quickstart", "serve", "dev", ".", "cmd", "examples",
}

// folderOf returns the folder of a package in the order.
func folderOf(pkg string, order []string) string {
	name, below, _ := strings.Cut(pkg, "/")
	if in, _, _ := strings.Cut(below, "/"); name == "internal" && slices.Contains(order, in) {
		return in
	}
	return name
}

// upward reports imports of packages whose top-level folder comes later in order, folders
// missing from order, and folders without packages.
func (r *repo) upward(order []string) (findings []string) {
	found := map[string]bool{}
	for pkg, sources := range r.packages() {
		from := folderOf(pkg, order)
		at := slices.Index(order, from)
		if found[from] = true; at < 0 {
			findings = append(findings, pkg+": folder "+from+" has no place in the order of folders (internal/lint/layers_test.go)")
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

// Models and layers are independent of devices, which package engine owns.
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

// tools is the folder of benchmarks and checks, which users do not run.
const tools = "dev"

// toolUsers lists the packages outside tools that may import it, with the reason.
var toolUsers = map[string]string{
	"cmd/lorafuse/cli": "implements lorafuse bench",
	"cmd/gpubench":     "runs benchmarks",
	"cmd/gpucheck":     "runs its commands",
}

// strays reports imports of tools by packages that may not; tests may.
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
			findings = append(findings, pkg+": does not import "+tools+", which toolUsers lists")
		}
	}
	return findings
}

func TestToolsStayApart(t *testing.T) { none(t, theRepo(t).strays(toolUsers)) }

// foreign reports imports of pkg that are neither in the standard library nor below an
// allowed path.
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

// Package safetensors is usable on its own.
func TestSafetensorsStandsAlone(t *testing.T) {
	r := theRepo(t)
	require.NotEmpty(t, r.packages()["safetensors"])
	none(t, r.foreign("safetensors", "golang.org/x/sys"))
	for _, pkg := range []string{"safetensors/remote", "safetensors/torchfile"} {
		require.NotEmpty(t, r.packages()[pkg])
		none(t, r.foreign(pkg, module+"/safetensors"))
	}
}

// cgo reports files that a build without tags compiles with cgo, or with purego, which makes
// a binary dynamic too.
func (r *repo) cgo() (findings []string) {
	for _, f := range r.files {
		i := slices.IndexFunc(f.imports(), func(imp string) bool { return imp == "C" || imp == "github.com/ebitengine/purego" })
		if i < 0 {
			continue
		}
		for _, system := range []string{"linux", "windows"} { // on macOS, Metal is part of a build with cgo
			ctx := build.Default
			ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled, ctx.BuildTags = system, "amd64", true, nil
			ctx.OpenFile = func(name string) (io.ReadCloser, error) { return r.fsys.Open(name) }
			ctx.JoinPath = path.Join
			if match, err := ctx.MatchFile(f.pkg, path.Base(f.path)); err != nil || match {
				findings = append(findings, fmt.Sprintf("%s: imports %s in the default build for %s", f.path, f.imports()[i], system))
			}
		}
	}
	return findings
}

func TestNoCgo(t *testing.T) { none(t, theRepo(t).cgo()) }

// layerTable returns the layers as a Markdown table. Packages are described by the first
// sentence of their comments.
func (r *repo) layerTable(layers map[string]placement) string {
	var b strings.Builder
	b.WriteString("| layer | package | what it does | imports in its layer |\n|---|---|---|---|\n")
	names := slices.SortedFunc(maps.Keys(layers), func(x, y string) int {
		if layers[x].layer != layers[y].layer {
			return layers[x].layer - layers[y].layer
		}
		return strings.Compare(x, y)
	})
	pkgs := r.packages()
	for _, name := range names {
		layer := fmt.Sprint(layers[name].layer)
		if layers[name].layer == ground {
			layer = "–"
		}
		var peers []string
		for _, other := range slices.Sorted(maps.Keys(layers[name].peers)) {
			peers = append(peers, fmt.Sprintf("`%s` (%s)", other, layers[name].peers[other]))
		}
		what := strings.NewReplacer("[", "", "]", "", "|", `\|`).Replace(synopsis(pkgs[name]))
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", layer, name, what, strings.Join(peers, ", "))
	}
	return b.String()
}
