package safetensors

import "sync"

// lanes distributes chunks to readers. Each reader has its own lane of
// consecutive chunks, which suits disks and the kernel's readahead. A reader
// that has finished its lane takes over the second half of another one's
// remaining chunks.
type lanes struct {
	mu    sync.Mutex
	spans []chunkQueue
}

// chunkQueue is the range of chunks from next to end, exclusive.
type chunkQueue struct{ next, end int }

// newLanes assigns a lane of about the same number of bytes to each reader.
func newLanes(chunks []Chunk, readers int) *lanes {
	l := &lanes{spans: make([]chunkQueue, readers)}
	var total, sum int64
	for i := range chunks {
		total += chunks[i].Length
	}
	next := 0
	for i := range l.spans {
		// At least one chunk for this reader, and one for each of the following
		// ones.
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
		l.spans[i] = chunkQueue{next, end}
		next = end
	}
	return l
}

// nextChunk returns the index of the next chunk for a reader, and false if none is
// left.
func (l *lanes) nextChunk(reader int) (int, bool) {
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
		*own, longest.end = chunkQueue{middle, longest.end}, middle
	}
	own.next++
	return own.next - 1, true
}
