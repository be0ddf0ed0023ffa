package host

// SetBudget changes the memory that arenas of cached programs may have.
func (h *Host) SetBudget(bytes int64) { h.budget = bytes }

// Len returns how many programs are cached.
func (h *Host) Len() int { return len(h.programs) }
