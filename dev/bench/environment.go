package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Environment describes the machine on which a benchmark ran, as far as the system reports it.
type Environment struct {
	Time       time.Time `json:"time"`
	CPU        string    `json:"cpu"`
	Cores      int       `json:"cores"`   // that the system has
	Threads    int       `json:"threads"` // that were measured: of the device, or GOMAXPROCS
	Memory     int64     `json:"memory_bytes,omitempty"`
	Kernel     string    `json:"kernel,omitempty"`
	Platform   string    `json:"platform"`
	Go         string    `json:"go"`
	Build      string    `json:"build,omitempty"`       // of this module, from the version
	Device     string    `json:"device,omitempty"`      // the backend's description
	FileSystem string    `json:"file_system,omitempty"` // of the folder with the files
	HugePages  string    `json:"huge_pages,omitempty"`  // always, madvise or never
	Load       string    `json:"load,omitempty"`        // average of the last minute when the run began
}

// Machine describes this machine and, if dir is not empty, the file system of dir.
func Machine(dir string) Environment {
	return Environment{
		Time: time.Now().UTC().Truncate(time.Second), CPU: cpuName(text("/proc/cpuinfo")), Cores: runtime.NumCPU(), Threads: runtime.GOMAXPROCS(0),
		Memory: memory(text("/proc/meminfo")), Kernel: text("/proc/sys/kernel/osrelease"), Platform: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Build: build(),
		FileSystem: fileSystem(text("/proc/self/mountinfo"), dir), HugePages: chosen(text("/sys/kernel/mm/transparent_hugepage/enabled")),
		Load: first(text("/proc/loadavg")),
	}
}

// build returns the version of the main module.
func build() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return ""
}

// String describes the environment in one sentence.
func (e Environment) String() string {
	parts := []string{fmt.Sprintf("%s, %d cores, %d threads", e.CPU, e.Cores, e.Threads)}
	add := func(format, s string) {
		if s != "" {
			parts = append(parts, fmt.Sprintf(format, s))
		}
	}
	if e.Memory > 0 {
		add("%s of memory", fmt.Sprintf("%.1f GB", float64(e.Memory)/1e9))
	}
	add("kernel %s", e.Kernel)
	add("%s", e.Platform)
	add("%s", e.Go)
	add("device: %s", e.Device)
	add("files on %s", e.FileSystem)
	add("huge pages: %s", e.HugePages)
	add("load %s at the start", e.Load)
	return strings.Join(parts, ", ") + "; " + e.Time.Format(time.DateOnly) + "."
}

// text returns the content of a small system file, or "" if it cannot be read.
func text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func first(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

// chosen returns the word in brackets of a setting such as "always [madvise] never".
func chosen(s string) string {
	_, rest, _ := strings.Cut(s, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// field returns the value of the first line "key : value".
func field(s, key string) string {
	for line := range strings.Lines(s) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func cpuName(cpuinfo string) string {
	if name := field(cpuinfo, "model name"); name != "" {
		return name
	}
	return runtime.GOARCH
}

func memory(meminfo string) int64 {
	var kib int64
	fmt.Sscan(field(meminfo, "MemTotal"), &kib)
	return kib << 10
}

// fileSystem finds the kind of file system that a folder is on: that of the
// longest mount point above it.
func fileSystem(mountinfo, dir string) string {
	if dir == "" {
		return ""
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	kind, longest := "", 0
	for line := range strings.Lines(mountinfo) {
		mount, source, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 {
			continue
		}
		point := fields[4]
		if inside := point == "/" || dir == point || strings.HasPrefix(dir, point+"/"); inside && len(point) >= longest {
			kind, longest = first(source), len(point)
		}
	}
	return kind
}
