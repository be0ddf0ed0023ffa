//go:build cgo && (darwin || (metal && metalfake))

package metal

import "github.com/lorafuse/lorafuse/backend"

// Merged is how many launches of a program run as a part of one before them.
func Merged(e backend.Executable) (n int) {
	p := e.(*executable).plan
	for i := range p.Len() {
		if from, to := p.Range(i); from == to {
			n++
		}
	}
	return n
}
