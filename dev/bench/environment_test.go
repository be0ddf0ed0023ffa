package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMachine(t *testing.T) {
	e := Machine(t.TempDir())
	assert.Equal(t, runtime.Version(), e.Go)
	assert.Positive(t, e.Cores)
	assert.Contains(t, e.String(), e.Platform)
	if runtime.GOOS != "linux" {
		return
	}
	assert.NotEmpty(t, e.CPU)
	assert.Greater(t, e.Memory, int64(1<<28))
	assert.Regexp(t, `^\d+\.\d+`, e.Kernel)
	assert.NotEmpty(t, e.FileSystem)
	assert.Empty(t, Machine("").FileSystem)
}

func TestFileSystem(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	dir, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	mounts := "1 0 8:1 / / rw - ext4 /dev/a rw\n" +
		"2 1 8:2 / " + dir + " rw shared:1 - tmpfs none rw\n" +
		"3 1 8:3 / " + dir + "/in rw - xfs none rw\n" +
		"4 1 8:4 / " + dir + "x rw - nfs none rw\nnonsense\n"
	for path, want := range map[string]string{dir: "tmpfs", dir + "/other": "tmpfs", dir + "/in/side": "xfs", dir + "xy": "ext4", link: "tmpfs", "/": "ext4"} {
		assert.Equal(t, want, fileSystem(mounts, path), path)
	}
}

func TestSystemFiles(t *testing.T) {
	assert.Equal(t, "Abacus 3000", cpuName("processor\t: 0\nmodel name\t: Abacus 3000\nmodel name : no\n"))
	assert.Equal(t, runtime.GOARCH, cpuName(""))
	assert.Equal(t, int64(24<<10), memory("MemFree: 1 kB\nMemTotal:       24 kB\n"))
	assert.Zero(t, memory(""))
	assert.Equal(t, "madvise", chosen("always [madvise] never"))
	assert.Empty(t, chosen(""))
}

func TestPeakRSS(t *testing.T) {
	before := PeakRSS()
	if before == 0 {
		t.Skip("this system does not tell")
	}
	b := make([]byte, 64<<20)
	for i := range b {
		b[i] = byte(i)
	}
	grown := PeakRSS() - before
	runtime.KeepAlive(b)
	assert.Greater(t, grown, int64(32<<20))
	assert.Less(t, grown, int64(512<<20), "the race detector keeps some bytes for each")
}
