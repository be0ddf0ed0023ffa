package gpucheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Pack describes the contents of a check's pack; pack.json in the pack holds it.
type Pack struct {
	Commit string    `json:"commit"`
	Built  string    `json:"built"` // versions of the compilers
	Arch   string    `json:"arch"`  // architecture of the kernels: 90a, or all
	Tests  []Program `json:"tests"` // empty in a pack for benchmarks
}

// Program is a test program.
type Program struct {
	Name   string `json:"name"`   // the package, such as backend/cuda
	Golden bool   `json:"golden"` // it tests models, on whatever backend it is told
	Run    string `json:"run"`    // the tests that are run, with | between them; empty for all
}

// Places in a pack.
const (
	PackFile    = "pack.json"
	ArchiveFile = "pack.zst"
	binFolder   = "bin"  // programs
	treeFolder  = "tree" // files that tests read, at their paths in the repository
)

// MostBytes is the maximum total size of a pack of benchmarks and its checkout, as an archive of tar: a machine may accept
// 64 MiB, and both grow.
const MostBytes = 60 << 20

// tarred returns the size of a file in an archive of tar, with its header and padding.
func tarred(size int64) int64 {
	const block = 512
	return block + (size+block-1)/block*block
}

// Build writes the archive of a pack to a folder: the programs of bin, which its pack.json describes, and files of the
// tree at root. If beside is true, the tree files are carried in a separate checkout and only their size counts. It
// fails on read and write errors, and if a pack without test programs is larger than MostBytes.
func Build(folder, bin, root string, tree []string, beside bool) error {
	pack, err := readPack(bin)
	if err != nil {
		return err
	}
	files := map[string]string{PackFile: filepath.Join(bin, PackFile)}
	entries, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != PackFile {
			files[binFolder+"/"+e.Name()] = filepath.Join(bin, e.Name())
		}
	}
	checkout := int64(0)
	for _, name := range tree {
		at := filepath.Join(root, filepath.FromSlash(name))
		info, err := os.Stat(at)
		switch {
		case err != nil || !info.Mode().IsRegular(): // git lists files that were just removed
		case beside:
			checkout += tarred(info.Size())
		default:
			files[treeFolder+"/"+name] = at
		}
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	to := filepath.Join(folder, ArchiveFile)
	f, err := os.Create(to + ".new")
	if err != nil {
		return err
	}
	err = errors.Join(WriteArchive(f, files), f.Close())
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		return err
	}
	if len(pack.Tests) > 0 { // too many programs for a machine that is lent for minutes
		return nil
	}
	return checkSize(folder, checkout)
}

// checkSize checks the total size of a pack and a checkout of the given number of bytes.
func checkSize(folder string, checkout int64) error {
	all := checkout
	err := filepath.Walk(folder, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			all += tarred(info.Size())
		}
		return err
	})
	if err == nil && all > MostBytes {
		err = fmt.Errorf("%s has %d bytes and its checkout %d in an archive of tar, expected at most %d together", folder, all-checkout, checkout, MostBytes)
	}
	return err
}

func readPack(folder string) (*Pack, error) {
	raw, err := os.ReadFile(filepath.Join(folder, PackFile))
	if err != nil {
		return nil, err
	}
	var p Pack
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", PackFile, err)
	}
	if p.Commit == "" {
		return nil, fmt.Errorf("%s: found no commit", PackFile)
	}
	return &p, nil
}

// binary returns the file name of a test program.
func (p *Program) binary() string { return strings.ReplaceAll(p.Name, "/", "_") + ".test" }
