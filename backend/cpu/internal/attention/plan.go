package attention

// The sizes of a tile of scores and the lengths at which a cache is cut. They
// decide the order of sums, so they are constants.
const (
	tileQueries = 256 // at most: see queriesOf
	tileKeys    = 128

	longPairs  = 256  // queries of a long segment where AMX multiplies bfloat16
	longFloats = 4096 // and float32
	longAVX2   = 1024 // with AVX2

	decodeQueries = 8   // a segment of at most so many queries streams over its keys
	decodeKeys    = 512 // in chunks of so many
)

// segment is a run of queries [q0,q1) and the range [k0,k1) that holds all
// their keys. Ranges of different segments are disjoint.
type segment struct {
	q0, q1, k0, k1 int
}

// tile is a part of a segment: at most tileQueries queries and the range of keys
// that they attend. The range begins at a multiple of tileKeys from the segment's
// first key.
type tile = segment

// chunk is a run of at most decodeKeys keys of a short segment.
type chunk struct {
	segment     // k0 and k1 are those of the chunk
	index   int // of the chunk in its segment
	of      int // chunks of the segment
	partial int // the first of its partial rows
}

// keyTile is a stretch of at most tileKeys keys of segment seg.
type keyTile struct {
	k0, k1, seg int
}

// plan is the division of a call into tasks. Its slices are reused.
type plan struct {
	long int // from so many queries on a segment has larger tiles, if not 0

	segments []segment
	maxKey   []int  // largest k1 of segments[:i+1]
	tiles    []tile // of all segments that are not cut into chunks, ascending
	chunks   []chunk
	partials int // rows that the chunks leave to be merged, times heads

	// For backward. firstTile[i] and firstKeyTile[i] are where the tiles of
	// segment i start.
	keyTiles                []keyTile
	firstTile, firstKeyTile []int
}

// divide finds the segments of the queries and their tiles; with decode, the
// chunks of the short ones.
func (p *plan) divide(s *Spec, decode bool) {
	p.findSegments(s)
	p.tiles, p.chunks, p.partials = p.tiles[:0], p.chunks[:0], 0
	p.firstTile = append(p.firstTile[:0], 0)
	for _, seg := range p.segments {
		if decode && seg.q1-seg.q0 <= decodeQueries {
			p.cut(s, seg)
		} else {
			p.tile(s, seg)
		}
		p.firstTile = append(p.firstTile, len(p.tiles))
	}
}

// queriesOf is how many queries a tile has, given those of its segment. Keys and
// values are packed once for each tile, which with AMX takes as long as the
// products. Long segments have tiles enough for all workers, so theirs are larger
// and pack less often.
func (p *plan) queriesOf(segment int) int {
	switch {
	case p.long > 0 && segment >= 4*p.long:
		return tileQueries
	case p.long > 0 && segment >= p.long:
		return tileQueries / 2
	}
	return tileQueries / 4
}

// tile divides the queries of a segment.
func (p *plan) tile(s *Spec, seg segment) {
	rows := p.queriesOf(seg.q1 - seg.q0)
	for q := seg.q0; q < seg.q1; q += rows {
		t := tile{q, min(q+rows, seg.q1), seg.k1, seg.k0}
		for i := t.q0; i < t.q1; i++ {
			if a, b := s.bounds(i); a < b {
				t.k0, t.k1 = min(t.k0, a), max(t.k1, b)
			}
		}
		if t.k0 < t.k1 {
			t.k0 -= (t.k0 - seg.k0) % tileKeys
			p.tiles = append(p.tiles, t)
		}
	}
}

// cut divides the keys of a short segment.
func (p *plan) cut(s *Spec, seg segment) {
	n := (seg.k1 - seg.k0 + decodeKeys - 1) / decodeKeys
	for i := range n {
		c := chunk{segment: seg, index: i, of: n, partial: p.partials}
		c.k0 = seg.k0 + i*decodeKeys
		c.k1 = min(c.k0+decodeKeys, seg.k1)
		if n > 1 {
			p.partials += (seg.q1 - seg.q0) * s.QHeads
		}
		p.chunks = append(p.chunks, c)
	}
}

// divideKeys finds the key tiles of each segment.
func (p *plan) divideKeys() {
	p.keyTiles = p.keyTiles[:0]
	p.firstKeyTile = append(p.firstKeyTile[:0], 0)
	for i, seg := range p.segments {
		for k := seg.k0; k < seg.k1; k += tileKeys {
			p.keyTiles = append(p.keyTiles, keyTile{k, min(k+tileKeys, seg.k1), i})
		}
		p.firstKeyTile = append(p.firstKeyTile, len(p.keyTiles))
	}
}

func (p *plan) findSegments(s *Spec) {
	p.segments, p.maxKey = p.segments[:0], p.maxKey[:0]
	for q := range s.queries() {
		if a, b := s.bounds(q); a < b {
			p.insert(segment{q, q + 1, a, b})
		}
	}
}

// insert appends a segment. If its keys overlap those of an earlier one, it
// takes in that one and all in between, whose keys may make it overlap more.
func (p *plan) insert(seg segment) {
	for i := len(p.segments) - 1; i >= 0 && p.maxKey[i] > seg.k0; i-- {
		if old := p.segments[i]; old.k0 >= seg.k1 || old.k1 <= seg.k0 {
			continue
		}
		for _, old := range p.segments[i:] {
			seg.q0, seg.k0, seg.k1 = min(seg.q0, old.q0), min(seg.k0, old.k0), max(seg.k1, old.k1)
		}
		p.segments, p.maxKey = p.segments[:i], p.maxKey[:i]
	}
	last := seg.k1
	if n := len(p.maxKey); n > 0 {
		last = max(last, p.maxKey[n-1])
	}
	p.segments, p.maxKey = append(p.segments, seg), append(p.maxKey, last)
}
