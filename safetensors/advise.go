package safetensors

// Advice is what will happen to mapped memory.
type Advice uint8

const (
	AdviseNormal     Advice = iota // nothing special
	AdviseSequential               // it is read from its beginning to its end: read ahead more
	AdviseRandom                   // it is read here and there: do not read ahead
	AdviseWillNeed                 // it is needed soon: begin to read it
	AdviseDontNeed                 // it is not needed for now: its pages need not stay this process's
	AdviseHugePages                // huge pages are worth it: what is read from the disk from now on comes in such
)

// Advise tells the system what will happen to the bytes of views, and to those
// that share a page with them. Advice changes no content, and where a system
// does not have it, or a view is not in mapped memory, nothing is done. It fails
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
		case a == AdviseHugePages: // of which the bytes have a part
			memory := r.origin.memory
			_ = advise(memory[r.begin&^(hugePage-1):min(int64(len(memory)), (r.end+hugePage-1)&^(hugePage-1))], a)
		default:
			_ = advise(r.origin.memory[r.begin:r.end], a)
		}
	}
	return nil
}
