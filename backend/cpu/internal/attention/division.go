package attention

// The sizes of a tile of scores and the lengths at which a cache is cut. They
// decide the order of sums, so they are constants.
const (
	tileQueries = 256 // at most: see queriesOf
	tileKeys    = 128

	longPairs  = 256  // queries of a long sequence where AMX multiplies bfloat16
	longFloats = 4096 // and float32
	longAVX2   = 1024 // with AVX2

	decodeQueries = 8   // sequences of at most this many queries stream over their keys
	decodeKeys    = 512 // keys per chunk of such a sequence
)

// sequence is a run of queries [q0,q1) and the range [k0,k1) that holds all
// their keys. Ranges of different sequences are disjoint.
type sequence struct {
	q0, q1, k0, k1 int
}

// tile is a part of a sequence: at most tileQueries queries and the range of keys
// that they attend. The range begins at a multiple of tileKeys from the sequence's
// first key.
type tile = sequence

// chunk is a run of at most decodeKeys keys of a short sequence.
type chunk struct {
	sequence     // k0 and k1 are the bounds of the chunk
	index    int // of the chunk in its sequence
	chunks   int // chunks of the sequence
	partial  int // the first of its partial rows
}

// keyTile is a range of at most tileKeys keys of sequence seq.
type keyTile struct {
	k0, k1, seq int
}

// division is the division of a call into tasks. Its slices are reused.
type division struct {
	long int // sequences of at least this many queries have larger tiles; 0 means never

	sequences []sequence
	maxKey    []int  // largest k1 of sequences[:i+1]
	tiles     []tile // of all sequences that are not cut into chunks, ascending
	chunks    []chunk
	partials  int // rows that the chunks leave to be merged, times heads

	// For backward. firstTile[i] and firstKeyTile[i] are where the tiles of
	// sequence i start.
	keyTiles                []keyTile
	firstTile, firstKeyTile []int
}

// divide finds the sequences of the queries and their tiles; with decode, the
// chunks of the short ones.
func (p *division) divide(s *Spec, decode bool) {
	p.findSequences(s)
	p.tiles, p.chunks, p.partials = p.tiles[:0], p.chunks[:0], 0
	p.firstTile = append(p.firstTile[:0], 0)
	for _, seq := range p.sequences {
		if decode && seq.q1-seq.q0 <= decodeQueries {
			p.cut(s, seq)
		} else {
			p.tile(s, seq)
		}
		p.firstTile = append(p.firstTile, len(p.tiles))
	}
}

// queriesOf returns the number of queries per tile, given the sequence length in queries. Keys and values are packed once per
// tile, which with AMX takes as long as the multiplications. Long sequences have enough tiles for all workers, so
// their tiles are larger and pack less often.
func (p *division) queriesOf(sequence int) int {
	switch {
	case p.long > 0 && sequence >= 4*p.long:
		return tileQueries
	case p.long > 0 && sequence >= p.long:
		return tileQueries / 2
	}
	return tileQueries / 4
}

// tile divides the queries of a sequence.
func (p *division) tile(s *Spec, seq sequence) {
	rows := p.queriesOf(seq.q1 - seq.q0)
	for q := seq.q0; q < seq.q1; q += rows {
		t := tile{q, min(q+rows, seq.q1), seq.k1, seq.k0}
		for i := t.q0; i < t.q1; i++ {
			if a, b := s.bounds(i); a < b {
				t.k0, t.k1 = min(t.k0, a), max(t.k1, b)
			}
		}
		if t.k0 < t.k1 {
			t.k0 -= (t.k0 - seq.k0) % tileKeys
			p.tiles = append(p.tiles, t)
		}
	}
}

// cut divides the keys of a short sequence.
func (p *division) cut(s *Spec, seq sequence) {
	n := (seq.k1 - seq.k0 + decodeKeys - 1) / decodeKeys
	for i := range n {
		c := chunk{sequence: seq, index: i, chunks: n, partial: p.partials}
		c.k0 = seq.k0 + i*decodeKeys
		c.k1 = min(c.k0+decodeKeys, seq.k1)
		if n > 1 {
			p.partials += (seq.q1 - seq.q0) * s.QHeads
		}
		p.chunks = append(p.chunks, c)
	}
}

// divideKeys finds the key tiles of each sequence.
func (p *division) divideKeys() {
	p.keyTiles = p.keyTiles[:0]
	p.firstKeyTile = append(p.firstKeyTile[:0], 0)
	for i, seq := range p.sequences {
		for k := seq.k0; k < seq.k1; k += tileKeys {
			p.keyTiles = append(p.keyTiles, keyTile{k, min(k+tileKeys, seq.k1), i})
		}
		p.firstKeyTile = append(p.firstKeyTile, len(p.keyTiles))
	}
}

func (p *division) findSequences(s *Spec) {
	p.sequences, p.maxKey = p.sequences[:0], p.maxKey[:0]
	for q := range s.queries() {
		if a, b := s.bounds(q); a < b {
			p.insert(sequence{q, q + 1, a, b})
		}
	}
}

// insert appends a sequence. If its keys overlap an earlier sequence, it absorbs that one and all in between, and
// repeats, since the union may overlap more.
func (p *division) insert(seq sequence) {
	for i := len(p.sequences) - 1; i >= 0 && p.maxKey[i] > seq.k0; i-- {
		if old := p.sequences[i]; old.k0 >= seq.k1 || old.k1 <= seq.k0 {
			continue
		}
		for _, old := range p.sequences[i:] {
			seq.q0, seq.k0, seq.k1 = min(seq.q0, old.q0), min(seq.k0, old.k0), max(seq.k1, old.k1)
		}
		p.sequences, p.maxKey = p.sequences[:i], p.maxKey[:i]
	}
	last := seq.k1
	if n := len(p.maxKey); n > 0 {
		last = max(last, p.maxKey[n-1])
	}
	p.sequences, p.maxKey = append(p.sequences, seq), append(p.maxKey, last)
}
