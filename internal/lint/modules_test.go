package lint

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dependency is a module that this one may require directly.
type dependency struct {
	why   string
	in    []string // packages that may import it
	tests bool     // tests may import it everywhere
}

// dependencies lists them all. A new one needs a reason worth its size in the
// binary and its upkeep.
var dependencies = map[string]dependency{
	"github.com/NVIDIA/go-nvml":        {why: "what GPUs do, with the tag cuda", in: []string{"backend/telemetry"}, tests: true},
	"github.com/clipperhouse/uax29/v2": {why: "grapheme clusters, as Hugging Face tokenizers cut them", in: []string{"tokenizer"}},
	"github.com/dlclark/regexp2/v2":    {why: "look-ahead in patterns of tokenizers and of target_modules", in: []string{"tokenizer", "lora"}},
	"github.com/ebitengine/purego":     {why: "loads the MPI library without cgo, with the tags mpi and cuda; it makes a binary dynamic, so the default build has none of it", in: []string{"dist/mpi"}},
	"github.com/klauspost/compress":    {why: "zstd: compressed data files, and packs of programs that have most in common (with a long window)", in: []string{"dev/gpucheck", "internal/data"}},
	// Apache's arrow-go reads Parquet too, and brings 20 modules, gRPC and FlatBuffers among them, to the 6 of this one.
	"github.com/parquet-go/parquet-go":         {why: "data files in Parquet, with all its encodings and compressions", in: []string{"internal/data"}},
	"github.com/prometheus/client_golang":      {why: "metrics of a server as Prometheus reads them: histograms, escaping, gzip", in: []string{"internal/serve/metrics"}},
	"github.com/prometheus/client_model":       {why: "the types that the next one reads them into", tests: true},
	"github.com/prometheus/common":             {why: "reads metrics as Prometheus does", tests: true},
	"github.com/rogpeppe/go-internal":          {why: "scripts that test the command line", tests: true},
	"github.com/santhosh-tekuri/jsonschema/v6": {why: "says whether what was written by a JSON Schema is valid", tests: true},
	"github.com/spf13/cobra":                   {why: "the command line: help, completion, errors as people know them", in: []string{"cmd/lorafuse/cli"}},
	"github.com/spf13/pflag":                   {why: "the flags of cobra, by whose types its API speaks", in: []string{"cmd/lorafuse/cli"}},
	"github.com/stretchr/testify":              {why: "assertions, also of the conformance suite", in: []string{"graph/conformance", "dev/gputest"}, tests: true},
	"github.com/vbauerster/mpb/v8":             {why: "progress bars", in: []string{"internal/progress"}},
	"go.etcd.io/bbolt":                         {why: "records of files and fine-tuning jobs that survive a crash, in one file; it brings no other module", in: []string{"internal/serve/store"}},
	"go.opentelemetry.io/otel":                 {why: "traces: attributes and traceparent as everyone has them", in: []string{"internal/serve/traces"}},
	// The exporter otlptracehttp would bring nine modules more, gRPC among them, to post a message whose JSON form is
	// as stable and is written by serve/traces/export.go.
	"go.opentelemetry.io/otel/sdk":   {why: "traces: sampling, batches, limits", in: []string{"internal/serve/traces"}},
	"go.opentelemetry.io/otel/trace": {why: "traces: spans", in: []string{"internal/serve/traces"}},
	"go.uber.org/goleak":             {why: "goroutines that outlive their test", tests: true},
	"github.com/BurntSushi/toml":     {why: "configurations of kohya's scripts", in: []string{"train/config/migrate"}},
	"go.yaml.in/yaml/v3":             {why: "configurations, with line numbers in errors, and the cards of datasets", in: []string{"train/config", "train/config/migrate", "internal/model/hub"}, tests: true},
	"golang.org/x/image":             {why: "scaling of pictures, and WebP", in: []string{"internal/data/picture"}},
	"golang.org/x/sys":               {why: "mapped files, instruction sets, affinity, locks, free memory and disk", in: []string{"backend/cpu", "backend/telemetry", "dev/bench/load", "dev/cputime", "dist", "internal/fsatomic", "internal/vec", "internal/model/hub", "safetensors", "tensor"}},
	"golang.org/x/text":              {why: "Unicode normal forms", in: []string{"tokenizer"}},
	"gonum.org/v1/gonum":             {why: "QR and SVD of PiSSA and OLoRA", in: []string{"internal/linalg"}, tests: true},
	"google.golang.org/protobuf":     {why: "the wire format of Tinker's messages; metrics bring the module anyway", in: []string{"internal/serve/tinker"}},
	"gorgonia.org/cu":                {why: "the CUDA driver; compiled in with the tag cuda alone", in: []string{"backend/cuda"}},
	"pgregory.net/rapid":             {why: "property tests", in: []string{"dev/draws"}, tests: true},
}

// goMod is what the rules read of a go.mod.
type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []struct{ Old struct{ Path string } }
}

func readGoMod(t testing.TB, dir string) goMod {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	var m goMod
	require.NoError(t, json.Unmarshal(out, &m))
	return m
}

// moduleOf finds the module that an import is in.
func (m goMod) moduleOf(imp string) string {
	best := ""
	for _, r := range m.Require {
		if len(r.Path) > len(best) && strings.HasPrefix(imp+"/", r.Path+"/") {
			best = r.Path
		}
	}
	return best
}

// requirements finds direct requirements without a reason, reasons without
// use, and modules that go.mod misplaces.
func (m goMod) requirements(r *repo, allowed map[string]dependency) (findings []string) {
	used := map[string]bool{}
	for _, f := range r.files {
		for _, imp := range f.imports() {
			if _, ok := own(imp); ok || f.apart || standard(imp) {
				continue
			}
			name := m.moduleOf(imp)
			d, ok := allowed[name]
			home, _ := placementOf(layers, f.pkg)
			used[name] = true
			switch {
			case !ok:
				findings = append(findings, fmt.Sprintf("%s: imports %s, whose module %q is not on the list (internal/lint/modules_test.go)", f.path, imp, name))
			case !slices.Contains(d.in, home) && !(f.test && d.tests):
				findings = append(findings, fmt.Sprintf("%s: imports %s; only %s may", f.path, imp, strings.Join(d.in, ", ")))
			}
		}
	}
	for _, q := range m.Require {
		switch _, ok := allowed[q.Path]; {
		case used[q.Path] == q.Indirect:
			findings = append(findings, fmt.Sprintf("go.mod: %s: imported here: %v, marked indirect: %v; run go mod tidy", q.Path, used[q.Path], q.Indirect))
		case !q.Indirect && !ok:
			findings = append(findings, "go.mod: requires "+q.Path+", which is not on the list (internal/lint/modules_test.go)")
		}
	}
	for name := range allowed {
		if !used[name] {
			findings = append(findings, name+": is on the list of modules, but nothing imports it")
		}
	}
	return findings
}

func TestRequirements(t *testing.T) {
	none(t, readGoMod(t, root(t)).requirements(theRepo(t), dependencies))
}

// A replaced module is one that users of the library do not get.
func TestNoReplace(t *testing.T) {
	for _, dir := range []string{".", "tools"} {
		require.Empty(t, readGoMod(t, filepath.Join(root(t), dir)).Replace, dir)
	}
}
