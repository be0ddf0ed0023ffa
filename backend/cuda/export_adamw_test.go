//go:build cuda && linux

package cuda

import "github.com/lorafuse/lorafuse/backend"

// Merged is how many launches of a program run as a part of one before them.
func Merged(e backend.Executable) (n int) {
	for _, s := range e.(*executable).steps {
		if s.from == s.to {
			n++
		}
	}
	return n
}
