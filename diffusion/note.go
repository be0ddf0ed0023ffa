package diffusion

import "sync"

// notes tells somebody what is to be known of the parts of a pipeline, once each. Nil tells
// nobody. It is safe for concurrent use.
type notes struct {
	tell func(text string)
	mu   sync.Mutex
	told map[string]bool
}

// Notify has tell called with what is to be known of a part when it is opened: tensors that
// nothing reads. A part that is opened again says it no more.
func (p *Pipeline) Notify(tell func(text string)) {
	p.notes = &notes{tell: tell, told: map[string]bool{}}
}

// add tells a text, unless it is empty or was told before.
func (n *notes) add(text string) {
	if n == nil || text == "" {
		return
	}
	n.mu.Lock()
	told := n.told[text]
	n.told[text] = true
	n.mu.Unlock()
	if !told {
		n.tell(text)
	}
}
