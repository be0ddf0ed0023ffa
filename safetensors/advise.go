package safetensors

// Advice tells the operating system how mapped memory will be accessed, like
// the advice argument of madvise(2).
type Advice uint8

const (
	AdviseNormal     Advice = iota // no particular access pattern
	AdviseSequential               // sequential access: read ahead more
	AdviseRandom                   // random access: do not read ahead
	AdviseWillNeed                 // needed soon: start reading
	AdviseDontNeed                 // not needed for now: the pages may leave this process's memory
	AdviseHugePages                // use huge pages for pages read from the disk after this call
)

// Advise passes advice to the operating system for the pages that hold the bytes
// of the views. Advice never changes contents. It does nothing for views that
// are not in mapped memory or if the system does not know the advice. It fails
// with ErrClosed.
func Advise(views []*View, a Advice) error {
	p := &LoadPlan{views: views}
	p.join(p.extents(), 0)
	release, err := p.acquire()
	if err != nil {
		return err
	}
	defer release()
	for i := range p.runs {
		r := &p.runs[i]
		switch {
		case !r.origin.mapped():
		case a == AdviseWillNeed:
			_ = r.origin.file.mapping.willNeed(r.begin, r.end)
		case a == AdviseHugePages: // Skip huge pages that extend past the run.
			memory := r.origin.memory
			_ = advise(memory[r.begin&^(hugePage-1):min(int64(len(memory)), (r.end+hugePage-1)&^(hugePage-1))], a)
		default:
			_ = advise(r.origin.memory[r.begin:r.end], a)
		}
	}
	return nil
}
