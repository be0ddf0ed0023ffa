package gpucheck

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// ErrArchive is the error of a file that is no archive of this package, or a
// damaged one.
var ErrArchive = errors.New("damaged archive")

// window is the maximum distance of a match. Programs share more than whole chunks.
const window = 128 << 20

// A file of an archive is a list of chunks. Each chunk is stored once: all programs of a pack contain the same
// kernels, which are most of their bytes.
type entry struct {
	Mode   fs.FileMode `json:"mode"`
	Chunks []int       `json:"chunks"`
	// Addresses are the addresses extracted from a program; see split.
	Addresses []int `json:"addresses,omitempty"`
}

// contents is the header of an archive, one line of JSON; the chunks follow.
type contents struct {
	Files map[string]entry `json:"files"`
	Sizes []int            `json:"sizes"` // of the chunks
}

// WriteArchive packs files. The keys are names with slashes, the values paths.
func WriteArchive(w io.Writer, files map[string]string) error {
	c := contents{Files: map[string]entry{}}
	seen := map[string]int{}
	var chunks [][]byte
	chunked := func(raw []byte) (list []int) {
		for len(raw) > 0 {
			n := cut(raw)
			at, ok := seen[string(raw[:n])]
			if !ok {
				at = len(chunks)
				seen[string(raw[:n])], chunks, c.Sizes = at, append(chunks, raw[:n]), append(c.Sizes, n)
			}
			list, raw = append(list, at), raw[n:]
		}
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		info, err := os.Stat(files[name])
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		var addresses []byte
		if bytes.HasPrefix(raw, []byte(elf.ELFMAG)) {
			raw, addresses = split(raw)
		}
		c.Files[name] = entry{Mode: info.Mode().Perm(), Chunks: chunked(raw), Addresses: chunked(addresses)}
	}
	z, err := compressor(w)
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

// compressor returns a zstd writer. It uses the zstd program if installed, whose output is a tenth smaller.
func compressor(w io.Writer) (io.WriteCloser, error) {
	path, err := exec.LookPath("zstd")
	if err != nil {
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(window))
	}
	c := exec.Command(path, "-q", "-19", "--long=27", "-c")
	c.Stdout, c.Stderr = w, os.Stderr
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	return &process{in, c}, err
}

// process is a program that is written to, and has ended when it is closed.
type process struct {
	io.WriteCloser
	c *exec.Cmd
}

func (p *process) Close() error { return errors.Join(p.WriteCloser.Close(), p.c.Wait()) }

// The end of a chunk depends only on the bytes before it, so equal bytes are cut at the same places wherever they are
// in a file. Small chunks also match within the tables of two programs.
const (
	leastChunk = 512
	mostChunk  = 64 << 10
	chunkBits  = 10 // one place in 1 << chunkBits ends a chunk
)

// cut returns the length of the first chunk.
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
	z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return bad(err)
	}
	defer z.Close()
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
	raw, err := together(e.Chunks, chunks)
	if err == nil && e.Addresses != nil {
		var addresses []byte
		if addresses, err = together(e.Addresses, chunks); err == nil {
			ok := false
			if raw, ok = joined(raw, addresses); !ok {
				err = fmt.Errorf("%d bytes of addresses are not those of the program", len(addresses))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArchive, name, err)
	}
	_, err = f.Write(raw)
	return err
}

// together concatenates the listed chunks.
func together(list []int, chunks [][]byte) (raw []byte, err error) {
	for _, i := range list {
		if i < 0 || i >= len(chunks) {
			return nil, fmt.Errorf("chunk %d of %d", i, len(chunks))
		}
		raw = append(raw, chunks[i]...)
	}
	return raw, nil
}
