package gpucheck

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// ErrArchive is the error of a file that is no archive of this package, or a
// damaged one.
var ErrArchive = errors.New("damaged archive")

// A file of an archive is a list of chunks, and every chunk is there once: the
// programs of a pack all carry the same kernels, which are most of their bytes.
type entry struct {
	Mode   fs.FileMode `json:"mode"`
	Chunks []int       `json:"chunks"`
}

// contents begins an archive, as one line of JSON; the chunks follow.
type contents struct {
	Files map[string]entry `json:"files"`
	Sizes []int            `json:"sizes"` // of the chunks
}

// WriteArchive packs files, by their names with slashes and where they lie.
func WriteArchive(w io.Writer, files map[string]string) error {
	c := contents{Files: map[string]entry{}}
	seen := map[[sha256.Size]byte]int{}
	var chunks [][]byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		info, err := os.Stat(files[name])
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		e := entry{Mode: info.Mode().Perm()}
		for len(raw) > 0 {
			n := cut(raw)
			sum := sha256.Sum256(raw[:n])
			at, ok := seen[sum]
			if !ok {
				at = len(chunks)
				seen[sum], chunks, c.Sizes = at, append(chunks, raw[:n]), append(c.Sizes, n)
			}
			e.Chunks, raw = append(e.Chunks, at), raw[n:]
		}
		c.Files[name] = e
	}
	z, err := gzip.NewWriterLevel(w, 6)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(c); err != nil {
		return err
	}
	for _, chunk := range chunks {
		if _, err := z.Write(chunk); err != nil {
			return err
		}
	}
	return z.Close()
}

// Chunks end where the bytes before say so, and so at the same places of the
// same bytes wherever these lie in a file. Small ones find what the tables of two
// programs have in common, too: the programs of a pack take 45 MB with these, 49
// with chunks of 16 KiB.
const (
	leastChunk = 512
	mostChunk  = 64 << 10
	chunkBits  = 10 // one place in 1 << chunkBits ends a chunk
)

// cut gives the length of the first chunk.
func cut(b []byte) int {
	var sum uint64
	for i, x := range b[:min(len(b), mostChunk)] {
		// The last 64 bytes decide, each by a number of its own.
		sum = sum<<1 + (uint64(x)+1)*0x9e3779b97f4a7c15
		if i >= leastChunk && sum>>(64-chunkBits) == 0 {
			return i + 1
		}
	}
	return min(len(b), mostChunk)
}

// ReadArchive unpacks an archive into a folder. Errors: ErrArchive.
func ReadArchive(r io.Reader, folder string) error {
	bad := func(err error) error { return fmt.Errorf("%w: %w", ErrArchive, err) }
	z, err := gzip.NewReader(r)
	if err != nil {
		return bad(err)
	}
	in := bufio.NewReaderSize(z, 1<<20)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return bad(err)
	}
	var c contents
	if err := json.Unmarshal(line, &c); err != nil {
		return bad(err)
	}
	chunks := make([][]byte, len(c.Sizes))
	for i, n := range c.Sizes {
		if n < 0 || n > mostChunk {
			return bad(fmt.Errorf("a chunk of %d bytes", n))
		}
		chunks[i] = make([]byte, n)
		if _, err := io.ReadFull(in, chunks[i]); err != nil {
			return bad(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return bad(fmt.Errorf("a file called %q", name))
		}
		if err := c.Files[name].write(filepath.Join(folder, filepath.FromSlash(name)), chunks); err != nil {
			return err
		}
	}
	return nil
}

func (e entry) write(name string, chunks [][]byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, e.Mode|0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, i := range e.Chunks {
		if i < 0 || i >= len(chunks) {
			return fmt.Errorf("%w: %s: chunk %d of %d", ErrArchive, name, i, len(chunks))
		}
		if _, err := f.Write(chunks[i]); err != nil {
			return err
		}
	}
	return nil
}
