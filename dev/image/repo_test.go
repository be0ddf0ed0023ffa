package image

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// root is the folder of the Dockerfile.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	return dir
}

func dockerfile(t testing.TB) *File {
	t.Helper()
	r, err := os.Open(filepath.Join(root(t), "Dockerfile"))
	require.NoError(t, err)
	defer r.Close()
	f, err := Parse(r)
	require.NoError(t, err)
	return f
}

// sent is what Docker would be sent of this working tree.
func sent(t testing.TB) map[string]int64 {
	t.Helper()
	r, err := os.Open(filepath.Join(root(t), ".dockerignore"))
	require.NoError(t, err)
	defer r.Close()
	g, err := ParseIgnore(r)
	require.NoError(t, err)
	files, err := g.Context(root(t))
	require.NoError(t, err)
	return files
}

// What is sent is small, and nothing of it was built, trained or downloaded here.
func TestContextIsSmall(t *testing.T) {
	const mostOfFile, mostOfAll = 1 << 20, 8 << 20
	all := int64(0)
	for name, n := range sent(t) {
		if all += n; n > mostOfFile {
			t.Errorf("%s: has %d bytes, at most %d", name, n, mostOfFile)
		}
		for part := range strings.SplitSeq(name, "/") {
			if slices.Contains([]string{"output", "build", "bin", "dist", ".git", "testdata", "__pycache__", "node_modules"}, part) {
				t.Errorf("%s: is no part of the source", name)
			}
		}
		if slices.Contains([]string{".fatbin", ".o", ".so", ".test", ".safetensors", ".prof"}, path.Ext(name)) && name != "backend/cuda/internal/shim/lib/libcuda.so" {
			t.Errorf("%s: was built or downloaded", name)
		}
	}
	assert.LessOrEqual(t, all, int64(mostOfAll), "bytes in all")
	out, err := exec.Command("git", "-C", root(t), "ls-files", "--others", "--ignored", "--exclude-standard").Output()
	if err != nil {
		return // no checkout of git
	}
	files := sent(t)
	for name := range strings.Lines(string(out)) {
		if _, ok := files[strings.TrimSpace(name)]; ok {
			t.Errorf("%s: git ignores it and Docker does not", strings.TrimSpace(name))
		}
	}
}

// Whatever a stage copies, the compiler reads and the scripts start with is sent.
func TestContextIsWhole(t *testing.T) {
	files := sent(t)
	need := map[string]string{"go.mod": "make build", "go.sum": "make build", "Makefile": "make build", "backend/cuda/compat/cuda.h": "build-cuda", "backend/cuda/internal/shim/lib/libcuda.so": "build-cuda"}
	for _, name := range []string{"scripts/cuda_toolchain.sh", "scripts/cuda_kernels.sh", "scripts/cuda_env.sh"} {
		need[name] = "make build-cuda"
	}
	kernels, err := filepath.Glob(filepath.Join(root(t), "kernels/cuda/*.cu*"))
	require.NoError(t, err)
	require.NotEmpty(t, kernels)
	for _, name := range kernels {
		need["kernels/cuda/"+filepath.Base(name)] = "make cuda-kernels"
	}
	for _, tags := range []string{"", "cuda"} {
		for _, arch := range []string{"amd64", "arm64"} {
			for _, name := range compiled(t, tags, arch) {
				need[name] = "go build -tags " + tags + " for " + arch
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(need)) {
		if _, ok := files[name]; !ok {
			t.Errorf("%s: .dockerignore leaves it out, and %s needs it", name, need[name])
		}
	}
}

// compiled lists the files of this module that a build of the program reads.
func compiled(t testing.TB, tags, arch string) (names []string) {
	t.Helper()
	c := exec.Command("go", "list", "-e", "-deps", "-json=Dir,Standard,Module,GoFiles,CgoFiles,CFiles,HFiles,SFiles,EmbedFiles", "-tags", tags, "./cmd/lorafuse")
	c.Dir = root(t)
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED="+map[string]string{"": "0", "cuda": "1"}[tags])
	out, err := c.Output()
	require.NoError(t, err)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir                                                   string
			Standard                                              bool
			Module                                                *struct{ Main bool }
			GoFiles, CgoFiles, CFiles, HFiles, SFiles, EmbedFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if p.Standard || p.Module == nil || !p.Module.Main {
			continue
		}
		rel, err := filepath.Rel(root(t), p.Dir)
		require.NoError(t, err)
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.CFiles, p.HFiles, p.SFiles, p.EmbedFiles) {
			if !strings.HasSuffix(name, ".fatbin") { // a stage makes these
				names = append(names, filepath.ToSlash(filepath.Join(rel, name)))
			}
		}
	}
	require.NotEmpty(t, names)
	return names
}

// Both images start as nobody in particular, can be asked how they are, and need
// of the driver what is mounted.
func TestDockerfile(t *testing.T) {
	f := dockerfile(t)
	assert.Equal(t, "cpu", f.Stages[len(f.Stages)-1].Name, "what a build without --target makes")
	for _, name := range []string{"cpu", "cuda"} {
		m, steps := &Image{}, f.Stage(name).Steps
		for i := range steps {
			m.set(&steps[i])
		}
		assert.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, m.User, "not root, and a number, as Kubernetes wants it")
		assert.Equal(t, []string{"/usr/local/bin/lorafuse"}, m.Entrypoint)
		assert.Equal(t, []string{"/usr/local/bin/lorafuse", "health"}, m.Healthcheck)
		env := strings.Join(m.Env, " ")
		assert.Contains(t, env, "HF_HOME=/models")
		assert.Equal(t, name == "cuda", strings.Contains(env, "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"))
		assert.NotContains(t, env, "NVIDIA_REQUIRE", "it must start without a GPU")
	}
	for _, s := range f.Stages {
		if s.Platform != "" {
			assert.Equal(t, "$BUILDPLATFORM", s.Platform)
		}
		if f.Stage(s.From) == nil && s.From != "scratch" {
			assert.Regexp(t, `:.*bookworm`, s.From, "a base image of this version: programs need the C library that they were linked with")
		}
	}
}

// TestScripts: a stage that is given some scripts has those that these call.
func TestScripts(t *testing.T) {
	calls := regexp.MustCompile(`\bsh (scripts/\w+\.sh)\b`)
	checked := 0
	for _, s := range dockerfile(t).Stages {
		for _, step := range s.Steps {
			if step.Name != "COPY" {
				continue
			}
			given := step.Words[:len(step.Words)-1]
			for _, script := range given {
				if !strings.HasPrefix(script, "scripts/") {
					continue
				}
				text, err := os.ReadFile(filepath.Join(root(t), script))
				require.NoError(t, err)
				for _, line := range strings.Split(string(text), "\n") {
					if c := calls.FindStringSubmatch(line); c != nil && !strings.HasPrefix(line, "#") {
						checked++
						assert.Contains(t, given, c[1], "Dockerfile:%d: %s calls it", step.Line, script)
					}
				}
			}
		}
	}
	assert.NotZero(t, checked)
}

// compose is what there is to know of a compose file.
type compose struct {
	Services map[string]struct {
		Profiles, Command, Volumes, Ports []string
		Image, User                       string
		Build                             struct{ Context, Target string }
		Deploy                            struct {
			Resources struct {
				Reservations struct {
					Devices []struct {
						Driver, Count string
						Capabilities  []string
					}
				}
			}
		}
	}
	Volumes map[string]any
}

// The compose file starts the images of the Dockerfile, the one for GPUs with
// all of them.
func TestCompose(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root(t), "compose.yaml"))
	require.NoError(t, err)
	var c compose
	require.NoError(t, yaml.Unmarshal(raw, &c))
	require.Len(t, c.Services, 2)
	f := dockerfile(t)
	for name, target := range map[string]string{"cpu": "cpu", "gpu": "cuda"} {
		s, ok := c.Services[name]
		require.True(t, ok, name)
		assert.Equal(t, []string{name}, s.Profiles)
		assert.Equal(t, ".", s.Build.Context)
		require.NotNil(t, f.Stage(s.Build.Target))
		assert.Equal(t, target, s.Build.Target)
		assert.Equal(t, []string{"train", "train.yaml", "--metrics-addr", ":9400"}, s.Command)
		assert.Equal(t, []string{"127.0.0.1:9400:9400"}, s.Ports, "the metrics, for this host alone")
		assert.Equal(t, "${LORAFUSE_USER:-65532:65532}", s.User)
		for _, v := range s.Volumes {
			from, to, ok := strings.Cut(v, ":")
			require.True(t, ok)
			assert.Contains(t, []string{"/models", "/data"}, to)
			if from != "." {
				assert.Contains(t, c.Volumes, from)
			}
		}
		assert.Len(t, s.Volumes, 2)
		devices := s.Deploy.Resources.Reservations.Devices
		if name == "cpu" {
			assert.Empty(t, devices)
			continue
		}
		require.Len(t, devices, 1)
		assert.Equal(t, "nvidia", devices[0].Driver)
		assert.Equal(t, "all", devices[0].Count)
		assert.ElementsMatch(t, []string{"gpu", "compute", "utility"}, devices[0].Capabilities)
	}
}
