package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shipped returns the top-level folders of the packages that the program is built from.
func (r *repo) shipped() map[string]bool {
	pkgs, seen, folders := r.packages(), map[string]bool{}, map[string]bool{}
	var visit func(pkg string)
	visit = func(pkg string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		folder, _, _ := strings.Cut(pkg, "/")
		if pkg == "." {
			folder = "*.go"
		}
		folders[folder] = true
		for _, f := range pkgs[pkg] {
			for _, imp := range f.imports() {
				if pkg, ok := own(imp); ok {
					visit(pkg)
				}
			}
		}
	}
	visit("cmd/lorafuse")
	return folders
}

// stage is a stage of the Dockerfile.
type stage struct{ from, user string }

// Paths, stages, versions and make targets that the Dockerfile names exist, .dockerignore keeps
// what the program is built from, and all images run as a user who is not root.
func TestDockerfile(t *testing.T) {
	r := theRepo(t)
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(root(t), name))
		require.NoError(t, err)
		return string(raw)
	}
	text, kept := read("Dockerfile"), strings.Split(read(".dockerignore"), "\n")
	for folder := range r.shipped() {
		assert.Contains(t, kept, "!"+folder, ".dockerignore")
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("go.mod"))[1]
	stages := map[string]*stage{}
	var last *stage
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "FROM":
			last = &stage{from: words[len(words)-3]}
			stages[words[len(words)-1]] = last
			if i := strings.Index(line, "golang:"); i >= 0 {
				assert.True(t, strings.HasPrefix(line[i:], "golang:"+version+"-"), "%s; go.mod has Go %s", line, version)
			}
		case words[0] == "COPY" && strings.HasPrefix(words[1], "--from="):
			assert.Contains(t, stages, strings.TrimPrefix(words[1], "--from="), line)
		case words[0] == "COPY":
			for _, name := range words[1 : len(words)-1] {
				_, err := fs.Stat(r.fsys, filepath.ToSlash(filepath.Clean(name)))
				assert.NoError(t, err, line)
			}
		case words[0] == "USER":
			assert.Regexp(t, `^USER [1-9]\d*:[1-9]\d*$`, line)
			last.user = words[1]
		}
	}
	targets := regexp.MustCompile(`(?m)^[\w-]+:`).FindAllString(read("Makefile"), -1)
	for _, m := range regexp.MustCompile(`make ([\w-]+)`).FindAllStringSubmatch(text, -1) {
		assert.Contains(t, targets, m[1]+":", "Makefile")
	}
	images := strings.Fields(regexp.MustCompile(`for target in (.*); do`).FindStringSubmatch(read("scripts/docker_build.sh"))[1])
	require.Len(t, images, 4)
	for _, m := range regexp.MustCompile(`target: (\w+)`).FindAllStringSubmatch(read("compose.yaml"), -1) {
		assert.Contains(t, images, m[1], "compose.yaml: %s", m[0])
	}
	for _, image := range images {
		s := stages[image]
		require.NotNil(t, s, "scripts/docker_build.sh: %s", image)
		for s.user == "" && stages[s.from] != nil {
			s = stages[s.from]
		}
		assert.NotEmpty(t, s.user, "%s: no USER", image)
	}
}
