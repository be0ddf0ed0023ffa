package merge

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/weights"
)

// verify opens the written model like any other reader, and compares names,
// types, shapes and bytes with the computed ones.
func (w *writer) verify(ctx context.Context, dir string) error {
	set, err := weights.OpenModel(dir)
	if err != nil {
		return fmt.Errorf("reading back: %w", err)
	}
	defer set.Close()
	for _, f := range set.Files() {
		w.result.Files = append(w.result.Files, filepath.Base(f.Path()))
	}
	if set.Len() != len(w.weights) {
		return fmt.Errorf("reading back: %d tensors, expected %d: %w", set.Len(), len(w.weights), ErrVerify)
	}
	for i := range w.weights {
		if err := ctx.Err(); err != nil {
			return err
		}
		x := &w.weights[i]
		v, err := set.Lookup(x.name)
		if err != nil {
			return fmt.Errorf("reading back: %w", err)
		}
		h := sha256.New()
		if _, err := v.WriteTo(h); err != nil {
			return fmt.Errorf("reading back: %w", err)
		}
		if v.DType != x.out || !slices.Equal(v.Shape, x.shape) || [sha256.Size]byte(h.Sum(nil)) != x.sum {
			return fmt.Errorf("reading back: tensor %q is %w", x.name, ErrVerify)
		}
		w.progress("verifying", i+1)
	}
	return nil
}
