package attention

import (
	"fmt"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// Paged keys are numbered in the order of the page table everywhere. Intervals, sequences, tiles and chunks are the
// same as if k and v were copied into that order, and so are the bits of results. Only reads of k and v look up the
// position of a key.

// keys returns the number of visible keys.
func (s *Spec) keys() int {
	if s.Page == 0 {
		return s.Keys
	}
	return len(s.Pages) * s.Page
}

// checkPages finds a page that k and v do not have.
func (s *Spec) checkPages() error {
	if s.Page == 0 {
		return nil
	}
	if s.Page < 0 || s.Page&(s.Page-1) != 0 {
		return fmt.Errorf("%w: pages of %d rows, want a power of two", ErrShape, s.Page)
	}
	have := s.Keys / s.Page
	for i, p := range s.Pages {
		if p < 0 || int(p) >= have {
			return fmt.Errorf("%w: page %d at %d, keys and values have %d pages of %d rows", ErrShape, p, i, have, s.Page)
		}
	}
	return nil
}

// place returns the row of k and v for key j, and the number of contiguous rows among the n keys from there on.
func (s *Spec) place(j, n int) (row, count int) {
	if s.Page == 0 {
		return j, n
	}
	page, in := j/s.Page, j%s.Page
	row, count = int(s.Pages[page])*s.Page+in, s.Page-in
	for ; count < n && s.Pages[page+1] == s.Pages[page]+1; page++ {
		count += s.Page
	}
	return row, min(count, n)
}

// tileRows returns the n keys of a tile from j on, of key head kv, for multiplication: in place, or gathered if they
// are not contiguous.
func (e *run) tileRows(w *worker, r Rows, j, n, kv int) gemm.Matrix {
	d := e.HeadDim
	row, count := e.place(j, n)
	if count == n {
		return r.matrix(row, kv*d)
	}
	to := Rows{Data: w.tile, Stride: d}
	if r.BF16 != nil {
		to.BF16 = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w.tile))), 4*len(w.tile))
	}
	for i := 0; i < n; i += count {
		row, count = e.place(j+i, n-i)
		for c := range count {
			if r.BF16 != nil {
				copy(to.bytes(i+c, 0, d), r.bytes(row+c, kv*d, d))
			} else {
				copy(to.from(i+c, 0)[:d], r.from(row+c, kv*d))
			}
		}
	}
	return to.matrix(0, 0)
}

// gatherWith allocates the workers' memory for gathered keys of a tile.
func (e *run) gatherWith(headDim int) {
	for i := range e.workers {
		e.workers[i].tile = grow(e.workers[i].tile, tileKeys*headDim)
	}
}
