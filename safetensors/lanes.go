package safetensors

import "sync"

// lanes hands chunks out to readers. Each reader has a lane of its own, a
// stretch of neighbouring chunks: disks and the kernel's readahead like that.
// One that is through takes the second half of what another has left.
type lanes struct {
	mu    sync.Mutex
	spans []lane
}

// lane is the chunks from next up to but not including end.
type lane struct{ next, end int }

// newLanes deals the chunks out, about the same number of bytes to each.
func newLanes(chunks []Chunk, readers int) *lanes {
	l := &lanes{spans: make([]lane, readers)}
	var total, sum int64
	for i := range chunks {
		total += chunks[i].Length
	}
	next := 0
	for i := range l.spans {
		// At least one each, and one left for each of the others.
		most := len(chunks) - (readers - 1 - i)
		end := next
		share := total / int64(readers) * int64(i+1)
		for end < most && (end == next || sum < share) {
			sum += chunks[end].Length
			end++
		}
		if i == readers-1 {
			end = len(chunks)
		}
		l.spans[i] = lane{next, end}
		next = end
	}
	return l
}

// take returns the number of the next chunk for a reader.
func (l *lanes) take(reader int) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := &l.spans[reader]
	if own.next == own.end {
		longest := own
		for i := range l.spans {
			if s := &l.spans[i]; s.end-s.next > longest.end-longest.next {
				longest = s
			}
		}
		if longest == own {
			return 0, false
		}
		middle := longest.next + (longest.end-longest.next)/2
		*own, longest.end = lane{middle, longest.end}, middle
	}
	own.next++
	return own.next - 1, true
}
