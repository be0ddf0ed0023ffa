// Package pages hands out the pages of a cache of keys and values: which rows of it
// the tokens of a text take, page by page, and which pages texts share because they
// begin with the same tokens. It knows numbers of pages and moves no row itself.
//
// A text takes a page when its tokens need one. Pages that are full and written are
// cached under a hash of all tokens up to their end, also when their text has gone, until
// others need the room: a text that begins as one before it finds its pages (Kwon et al.
// 2023, arXiv 2309.06180). Where two texts share a page that is not full, the first that
// goes on gets a copy of it.
package pages

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

var (
	// ErrFull is the error for tokens that there is no page for.
	ErrFull = errors.New("the pool of pages is full")
	// ErrText is the error for a call that a text cannot take: it was released, or has
	// rows that are not written.
	ErrText = errors.New("wrong use of a text in pages")
	// ErrSize is the error for a pool of sizes that no cache has.
	ErrSize = errors.New("wrong size of a pool of pages")
)

// Options are the sizes of a pool.
type Options struct {
	Pages int // of the cache
	Rows  int // of a page, a power of two
}

// Pool is the pages of one cache. What it keeps is bounded by their number. Its methods
// and those of its texts must not be called at the same time.
type Pool struct {
	rows  int
	pages []page         // and a last one, where the list of unused ones begins and ends
	free  []int32        // which hold nothing
	found map[hash]int32 // cached pages, by the hash of the tokens up to their end

	used            int // pages of texts
	queries, hits   uint64
	evicted, copied uint64

	block []byte // what is hashed
}

// page is what is known of one page.
type page struct {
	users  int
	cached bool
	hash   hash

	// Cached pages that no text uses are a list, the one that waits longest first. A text
	// leaves its pages from the last to the first, and has all those before a page that
	// it has: a page waits longer than all that come before it in a text, so that the
	// first of the list is one that no other goes on from.
	before, after int32
}

// hash stands for all tokens up to the end of a page, and for what they were read with.
type hash [sha256.Size]byte

// Root is what the hashes of a text begin with. Texts of different roots share nothing.
type Root hash

// NewRoot is the root of texts that are read with an adapter, or none: digest is that of
// the contents of the adapter, since one of the same name may have others tomorrow. Texts
// of different salts share nothing either, such as those of users who must not learn by
// how long an answer takes what others have asked.
func NewRoot(digest, salt []byte) Root {
	b := append([]byte("lorafuse pages\x00"), binary.LittleEndian.AppendUint64(nil, uint64(len(digest)))...)
	return sha256.Sum256(append(append(b, digest...), salt...))
}

// New is a pool in which all pages are free. Errors: ErrSize.
func New(o Options) (*Pool, error) {
	switch {
	case o.Rows < 1 || o.Rows&(o.Rows-1) != 0:
		return nil, fmt.Errorf("%w: %d rows of a page, expected a power of two", ErrSize, o.Rows)
	case o.Pages < 1 || o.Pages > math.MaxInt32/o.Rows:
		return nil, fmt.Errorf("%w: %d pages of %d rows, expected 1 to %d", ErrSize, o.Pages, o.Rows, math.MaxInt32/o.Rows)
	}
	p := &Pool{rows: o.Rows, pages: make([]page, o.Pages+1), free: make([]int32, o.Pages), found: map[hash]int32{}, block: make([]byte, sha256.Size+4*o.Rows)}
	for i := range p.free {
		p.free[i] = int32(o.Pages - 1 - i) // the first comes first
	}
	p.pages[o.Pages].before, p.pages[o.Pages].after = int32(o.Pages), int32(o.Pages)
	return p, nil
}

// Rows is the number of rows of a page.
func (p *Pool) Rows() int { return p.rows }

// Stats says what the pages do, and how often texts have found some.
type Stats struct {
	Pages  int // Used + Cached + Free
	Used   int // by texts
	Cached int // by no text; one that begins with their tokens finds them
	Free   int

	Queries uint64 // full pages that texts began with
	Hits    uint64 // of these, the ones that were found
	Evicted uint64 // cached pages that had to make room
	Copied  uint64 // pages that were shared when a row was to be added
}

// Stats counts from when the pool was made.
func (p *Pool) Stats() Stats {
	all := len(p.pages) - 1
	return Stats{Pages: all, Used: p.used, Cached: all - p.used - len(p.free), Free: len(p.free),
		Queries: p.queries, Hits: p.hits, Evicted: p.evicted, Copied: p.copied}
}

// Begin is a text that has the pages of the longest beginning of tokens that is cached. It
// is as long as these are ([Text.Len]): its next tokens are to be appended. A model that
// is to go on from a text must read its last token at least, so pass all but that.
func (p *Pool) Begin(root Root, tokens []int32) *Text {
	t := &Text{pool: p, hash: hash(root)}
	p.queries += uint64(len(tokens) / p.rows)
	for ; len(tokens) >= p.rows; tokens = tokens[p.rows:] {
		h := p.chain(t.hash, tokens[:p.rows])
		id, ok := p.found[h]
		if !ok {
			break
		}
		p.use(id)
		t.pages, t.hash = append(t.pages, id), h
	}
	p.hits += uint64(len(t.pages))
	t.length, t.written, t.cached = len(t.pages)*p.rows, len(t.pages)*p.rows, len(t.pages)
	return t
}

// Find says how many pages Begin would find, and how many of these no text uses now.
func (p *Pool) Find(root Root, tokens []int32) (found, unused int) {
	h := hash(root)
	for ; len(tokens) >= p.rows; tokens = tokens[p.rows:] {
		h = p.chain(h, tokens[:p.rows])
		id, ok := p.found[h]
		if !ok {
			break
		}
		found++
		if p.pages[id].users == 0 {
			unused++
		}
	}
	return found, unused
}

// chain is the hash of a page of tokens behind what has the hash before.
func (p *Pool) chain(before hash, tokens []int32) hash {
	copy(p.block, before[:])
	for i, id := range tokens {
		binary.LittleEndian.PutUint32(p.block[sha256.Size+4*i:], uint32(id))
	}
	return sha256.Sum256(p.block)
}

// room is how many pages can be taken.
func (p *Pool) room() int { return len(p.pages) - 1 - p.used }

// take gives a page to its first user. There must be room.
func (p *Pool) take() int32 {
	var id int32
	if n := len(p.free); n > 0 {
		id, p.free = p.free[n-1], p.free[:n-1]
	} else {
		id = p.pages[len(p.pages)-1].after
		p.unlink(id)
		delete(p.found, p.pages[id].hash)
		p.evicted++
	}
	p.pages[id] = page{users: 1}
	p.used++
	return id
}

// use gives a page to one more.
func (p *Pool) use(id int32) {
	if p.pages[id].users == 0 {
		p.unlink(id)
		p.used++
	}
	p.pages[id].users++
}

// leave takes a page from one of its users.
func (p *Pool) leave(id int32) {
	g := &p.pages[id]
	if g.users--; g.users > 0 {
		return
	}
	p.used--
	if !g.cached {
		p.free = append(p.free, id)
		return
	}
	end := int32(len(p.pages) - 1)
	g.before, g.after = p.pages[end].before, end
	p.pages[g.before].after, p.pages[end].before = id, id
}

// unlink takes a page out of the list of unused ones.
func (p *Pool) unlink(id int32) {
	g := &p.pages[id]
	p.pages[g.before].after, p.pages[g.after].before = g.after, g.before
}

// cache lets a full page of one text be found under a hash. Where another is found there,
// that one takes its place.
func (p *Pool) cache(id int32, h hash) int32 {
	if other, ok := p.found[h]; ok {
		p.use(other)
		p.leave(id)
		return other
	}
	p.pages[id].cached, p.pages[id].hash = true, h
	p.found[h] = id
	return id
}
