package convert

import (
	"fmt"
	"hash/maphash"
	"io"
	"slices"

	"github.com/lorafuse/lorafuse/internal/chunks"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// verify opens the output like any other reader, and compares names, types,
// shapes and bytes with the computed ones. These have already been compared
// with the source.
func (w *writer) verify(path string) error {
	if w.options.Unverified {
		return nil
	}
	set, err := weights.Open(path)
	if err != nil {
		return fmt.Errorf("reading back: %w", err)
	}
	defer set.Close()
	if set.Len() != len(w.targets) {
		return fmt.Errorf("reading back: %d tensors, expected %d: %w", set.Len(), len(w.targets), ErrVerify)
	}
	lengths := make([]int64, len(w.targets))
	written := make([]io.ReaderAt, len(w.targets))
	for i, t := range w.targets {
		v, err := set.Lookup(t.name)
		if err != nil {
			return fmt.Errorf("reading back: %w", err)
		}
		if v.DType != t.out || !slices.Equal(v.Shape, t.view.Shape) || int64(v.Len()) != t.size {
			return fmt.Errorf("reading back: tensor %q is %v%v: %w", t.name, v.DType, v.Shape, ErrVerify)
		}
		lengths[i], written[i] = t.size, v
	}
	o := chunks.Options{Size: chunkSize, Threads: w.options.Threads}
	if w.options.Progress != nil {
		o.Progress = func(done, total int64) { w.options.Progress("verifying", done, total) }
	}
	err = chunks.Each(w.ctx, lengths, o, func() func(chunks.Chunk) error {
		data := make([]byte, chunkSize)
		return func(p chunks.Chunk) error {
			t := w.targets[p.Run]
			if n, err := written[p.Run].ReadAt(data[:p.Length], p.From); n < int(p.Length) {
				return fmt.Errorf("reading back: %w", err)
			}
			if maphash.Bytes(seed, data[:p.Length]) != t.sums[p.Number] {
				return fmt.Errorf("reading back: bytes %d to %d of tensor %q are %w", p.From, p.From+p.Length, t.name, ErrVerify)
			}
			return nil
		}
	})
	w.result.Verified = err == nil
	return err
}
