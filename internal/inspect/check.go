package inspect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/internal/chunks"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Report is the result of [Check].
type Report struct {
	// Values describe the tensors, in the order of the set's Names, with
	// checksums.
	Values []Values
	// Files holds the digests of all files, the index last.
	Files []Digest
	// Problems lists errors: bytes that cannot be read, booleans other than 0
	// and 1, an index that does not match the shards, a file whose digest
	// differs from the published one.
	Problems []string
	// Warnings lists possible errors: NaN and infinities, tensors of zeros,
	// tensors that are copies of others.
	Warnings []string
}

// Digest is the SHA-256 of a file.
type Digest struct {
	Name   string // relative to the folder of the index, if any
	Bytes  int64
	SHA256 string // in hexadecimal
	// Expected is the source of the digest to compare with, empty for none: a
	// file of the same name with the extension ".sha256", as sha256sum writes
	// it, or the Hugging Face cache, in which the name of a large file is its
	// digest.
	Expected string
}

// Check reads every byte of a set twice: as files and as tensors. It fails with
// the error of ctx, or if a file that was open before cannot be read.
func Check(ctx context.Context, s *weights.Set, o Options) (*Report, error) {
	views, err := s.Views()
	if err != nil {
		return nil, err
	}
	paths, names := filesOf(s)
	r := &Report{Files: make([]Digest, len(paths)), Problems: s.Disagreements()}
	both := &chunks.Progress{Report: o.Progress}
	for _, v := range views {
		both.Total += int64(v.Len())
	}
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		r.Files[i] = Digest{Name: names[i], Bytes: info.Size()}
		both.Total += info.Size()
	}
	// One goroutine reads a file sequentially; at about the same time the
	// others find its bytes in memory.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var digests sync.WaitGroup
	errs := make([]error, len(paths))
	digests.Go(func() {
		for i, path := range paths {
			if errs[i] = r.Files[i].read(ctx, path, both.Add); errs[i] != nil {
				cancel()
				return
			}
		}
	})
	done := int64(0)
	o.Checksums = true
	o.Progress = func(now, _ int64) {
		both.Add(now - done)
		done = now
	}
	r.Values, err = Scan(ctx, views, o)
	digests.Wait()
	if first := errors.Join(errs...); first != nil {
		return nil, first
	}
	if err != nil {
		return nil, err
	}
	for i := range paths {
		if err := r.checkDigest(&r.Files[i], paths[i]); err != nil {
			return nil, err
		}
	}
	for _, err := range s.Verify() {
		r.Problems = append(r.Problems, err.Error())
	}
	r.judge(views)
	return r, r.findCopies(ctx, views)
}

// filesOf returns the paths of a set's files and their names.
func filesOf(s *weights.Set) (paths, names []string) {
	for _, f := range s.Files() {
		paths, names = append(paths, f.Path()), append(names, s.Name(f.Path()))
	}
	if s.Index != nil {
		paths, names = append(paths, s.Index.Path), append(names, s.Name(s.Index.Path))
	}
	return paths, names
}

// read computes the digest of the file at path.
func (d *Digest) read(ctx context.Context, path string, progress func(int64)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	defer f.Close()
	h, block := sha256.New(), make([]byte, 1<<20)
	d.Bytes = 0
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.Read(block)
		h.Write(block[:n])
		d.Bytes += int64(n)
		progress(int64(n))
		if err == io.EOF {
			d.SHA256 = hex.EncodeToString(h.Sum(nil))
			return nil
		}
		if err != nil {
			return fmt.Errorf("inspect: %w", err)
		}
	}
}

var digestPattern = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// checkDigest compares a digest with the expected one.
func (r *Report) checkDigest(d *Digest, path string) error {
	want := ""
	raw, err := os.ReadFile(path + ".sha256")
	switch {
	case err == nil:
		d.Expected = filepath.Base(path) + ".sha256"
		if fields := strings.Fields(string(raw)); len(fields) > 0 {
			want = fields[0]
		}
		if !digestPattern.MatchString(want) {
			r.Problems = append(r.Problems, fmt.Sprintf("%s holds no SHA-256", d.Expected))
			return nil
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("inspect: %w", err)
	default:
		blob, err := filepath.EvalSymlinks(path)
		if err != nil || !digestPattern.MatchString(filepath.Base(blob)) || filepath.Base(filepath.Dir(blob)) != "blobs" {
			return nil
		}
		d.Expected, want = "the Hugging Face cache", filepath.Base(blob)
	}
	if !strings.EqualFold(want, d.SHA256) {
		r.Problems = append(r.Problems, fmt.Sprintf("%s has the SHA-256 %s, expected %s by %s", d.Name, d.SHA256, strings.ToLower(want), d.Expected))
	}
	return nil
}

// judge adds the problems and warnings about single tensors.
func (r *Report) judge(views []*safetensors.View) {
	for i, v := range views {
		x := &r.Values[i]
		switch {
		case x.Err != nil:
			r.Problems = append(r.Problems, x.Err.Error())
			continue
		case x.NotBool > 0:
			r.Problems = append(r.Problems, fmt.Sprintf("tensor %q: %d values of BOOL are neither 0 nor 1", v.Name, x.NotBool))
		case x.NaN+x.Inf > 0:
			r.Warnings = append(r.Warnings, fmt.Sprintf("tensor %q: %d of %d values are NaN, %d are infinite", v.Name, x.NaN, x.Elements, x.Inf))
		case x.Zero == x.Elements && x.Elements > 0:
			r.Warnings = append(r.Warnings, fmt.Sprintf("tensor %q: all %d values are 0", v.Name, x.Elements))
		}
	}
}

// findCopies adds warnings about tensors with identical bytes. It ignores
// constant tensors, such as new norms.
func (r *Report) findCopies(ctx context.Context, views []*safetensors.View) error {
	type content struct {
		crc   uint32
		bytes int
		kind  string
	}
	first := map[content]int{}
	var pairs []Pair
	for i, v := range views {
		x := &r.Values[i]
		if x.Err != nil || x.Elements < 2 || x.Constant() {
			continue
		}
		c := content{x.CRC32C, v.Len(), fmt.Sprint(v.DType, v.Shape)}
		j, ok := first[c]
		if !ok {
			first[c] = i
			continue
		}
		if sharesBytes(views[j], v) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("tensor %q shares the bytes of %q", v.Name, views[j].Name))
			continue
		}
		pairs = append(pairs, Pair{views[j], v})
	}
	differences, err := Compare(ctx, pairs, Options{})
	if err != nil {
		return err
	}
	for i, d := range differences {
		if d.Differ == 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("tensor %q is a copy of %q", pairs[i].B.Name, pairs[i].A.Name))
		}
	}
	return nil
}

func sharesBytes(a, b *safetensors.View) bool {
	pathA, fromA, _ := a.Extent()
	pathB, fromB, _ := b.Extent()
	return pathA == pathB && fromA == fromB && fromA >= 0
}
