package sim

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The cases of the shader compiler: right kernels in every order of threads, planted
// mistakes, sources that Metal refuses.
func TestMetalShaders(t *testing.T) {
	program := filepath.Join(buildMetal(t, "shadertest"), "shadertest")
	out, err := run(t, []string{"LORAFUSE_MSL_CACHE=" + t.TempDir()}, program)
	n := 0
	for line := range strings.Lines(string(out)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word != "ok" && word != "FAIL" {
			continue
		}
		name, message, _ := strings.Cut(rest, ": ")
		t.Run(name, func(t *testing.T) { require.Equal(t, "ok", word, message) })
		n++
	}
	require.NoError(t, err, "%s", out)
	require.Greater(t, n, 40)
}

// The command says where a mistake is, and lists the kernels of what is right.
func TestMetalCompiler(t *testing.T) {
	build := buildMetal(t, "lfmsl")
	t.Setenv("LORAFUSE_MSL_CACHE", t.TempDir())
	out, err := run(t, nil, filepath.Join(build, "lfmsl"), "metal/test/shaders/right.metal")
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "metal/test/shaders/right.metal: reverse: 1 buffers, 0 bytes of threadgroup memory, 128 threads at most\n")
	out, err = run(t, nil, filepath.Join(build, "lfmsl"), "metal/test/shaders/right.metal", "-D__LF_NO_SIMD=1")
	require.Error(t, err)
	require.Regexp(t, `metal/test/shaders/right\.metal:\d+:\d+: error: .*simd_sum`, string(out))
}
