package safetensors

// gather fills dst with the bytes of the part from off on, which it has.
func (s *Slice) gather(dst []byte, off int64) error {
	if s.view.source != nil {
		return s.gatherSource(dst, off)
	}
	return s.view.Use(func(data []byte) error {
		s.runs(off, int64(len(dst)), func(at, length, step, count int64) {
			for range count {
				copy(dst[:length], data[at:])
				dst = dst[length:]
				at += step
			}
		})
		return nil
	})
}

// runs calls fn for the runs that hold length bytes of the part from off on:
// count of them at a time, step from one to the next, the first at.
func (s *Slice) runs(off, length int64, fn func(at, length, step, count int64)) {
	for length > 0 {
		number, inside := off/s.run, off%s.run
		at, left, step := s.first, int64(1), int64(0)
		for i := len(s.loops) - 1; i >= 0; i-- {
			l := s.loops[i]
			turn := number % l.count
			number /= l.count
			at += turn * l.step
			if i == len(s.loops)-1 {
				left, step = l.count-turn, l.step
			}
		}
		count := min(left, length/s.run)
		n := s.run
		if inside > 0 || count == 0 { // a run of which not all is wanted
			count, n = 1, min(s.run-inside, length)
		}
		fn(at+inside, n, step, count)
		off += n * count
		length -= n * count
	}
}

// gatherSource is gather for a tensor that is read on demand.
func (s *Slice) gatherSource(dst []byte, off int64) (err error) {
	if s.view.file.mapping.isClosed() {
		return s.view.file.errClosed()
	}
	s.runs(off, int64(len(dst)), func(at, length, step, count int64) {
		for range count {
			if err == nil {
				_, err = s.view.readSource(dst[:length], at)
			}
			dst = dst[length:]
			at += step
		}
	})
	return err
}
