package diffusion

import "sync"

// notes reports notes on the parts of a pipeline, each once. A nil *notes discards them. It
// is safe for concurrent use.
type notes struct {
	tell func(text string)
	mu   sync.Mutex
	told map[string]bool
}

// Notify sets the function that receives notes when a part is opened, such as a list of
// unused tensors. Each note is reported once, even if its part is opened again.
func (p *Pipeline) Notify(tell func(text string)) {
	p.notes = &notes{tell: tell, told: map[string]bool{}}
}

// add reports a note, unless it is empty or was reported before.
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
