// Package pages implements the page pool of a KV cache: it assigns cache rows to the tokens of a
// text, page by page, and shares pages between texts with a common prefix. It manages page numbers
// only and copies no rows itself.
//
// A text allocates a page when its tokens need one. Full pages with written rows are cached under a
// hash of all tokens up to their end, and stay cached after their text has ended until the space is
// needed. A text with the same prefix reuses the pages (Kwon et al. 2023, arXiv 2309.06180). If two
// texts share a page that is not full, the first that appends to it gets a copy.
package pages

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
)

var (
	// ErrFull is the error for tokens for which no page is available.
	ErrFull = errors.New("the pool of pages is full")
	// ErrText is the error for a call on a text that was released or has unwritten rows.
	ErrText = errors.New("wrong use of a text in pages")
	// ErrSize is the error for an invalid size of a pool.
	ErrSize = errors.New("wrong size of a pool of pages")
)

// Options configure a pool.
type Options struct {
	Pages int // number of pages of the cache
	Rows  int // rows per page, a power of two
}

// Pool holds the pages of one cache. The number of pages bounds its memory. Methods of a Pool and
// of its texts must not be called concurrently, except Cached.
type Pool struct {
	rows  int
	pages []page         // the extra last page is the head of the list of unused pages
	free  []int32        // empty pages
	found map[hash]int32 // cached pages, by the hash of the tokens up to their end
	mu    sync.RWMutex   // held to change found, and by Cached

	used            int // pages of texts
	queries, hits   uint64
	evicted, copied uint64

	block []byte // what is hashed
}

// page is the state of one page.
type page struct {
	users  int
	cached bool
	hash   hash

	// Cached pages without a user form a list, the longest unused first. A text releases its pages
	// from the last to the first, and holding a page implies holding all pages before it. So a page
	// is unused for longer than the pages before it in its text, and no cached page continues the
	// first of the list.
	before, after int32
}

// hash identifies all tokens up to the end of a page, and the adapter and settings they were read
// with.
type hash [sha256.Size]byte

// Root is the initial hash of a text. Texts with different roots share no pages.
type Root hash

// NewRoot returns the root of texts that are read with an adapter, or none. digest is the digest of
// the adapter's contents, since its name may later refer to other contents. Texts with different
// salts share nothing. Use salts for users who must not learn from response times what others have
// asked.
func NewRoot(digest, salt []byte) Root {
	b := append([]byte("lorafuse pages\x00"), binary.LittleEndian.AppendUint64(nil, uint64(len(digest)))...)
	return sha256.Sum256(append(append(b, digest...), salt...))
}

// New returns a pool in which all pages are free. Errors: ErrSize.
func New(o Options) (*Pool, error) {
	switch {
	case o.Rows < 1 || o.Rows&(o.Rows-1) != 0:
		return nil, fmt.Errorf("%w: %d rows of a page, expected a power of two", ErrSize, o.Rows)
	case o.Pages < 1 || o.Pages > math.MaxInt32/o.Rows:
		return nil, fmt.Errorf("%w: %d pages of %d rows, expected 1 to %d", ErrSize, o.Pages, o.Rows, math.MaxInt32/o.Rows)
	}
	p := &Pool{rows: o.Rows, pages: make([]page, o.Pages+1), free: make([]int32, o.Pages), found: map[hash]int32{}, block: make([]byte, sha256.Size+4*o.Rows)}
	for i := range p.free {
		p.free[i] = int32(o.Pages - 1 - i) // so that page 0 is allocated first
	}
	p.pages[o.Pages].before, p.pages[o.Pages].after = int32(o.Pages), int32(o.Pages)
	return p, nil
}

// Rows returns the number of rows per page.
func (p *Pool) Rows() int { return p.rows }

// Stats holds the page counts, and the hits of the prefix cache.
type Stats struct {
	Pages  int // Used + Cached + Free
	Used   int // in use by texts
	Cached int // unused, but found by texts with the same prefix
	Free   int

	Queries uint64 // full pages looked up
	Hits    uint64 // of these, pages that were found
	Evicted uint64 // cached pages that were reused for other tokens
	Copied  uint64 // copies of shared pages made to append a row
}

// Plus returns the sums of the counts of two pools.
func (s Stats) Plus(o Stats) Stats {
	return Stats{Pages: s.Pages + o.Pages, Used: s.Used + o.Used, Cached: s.Cached + o.Cached, Free: s.Free + o.Free,
		Queries: s.Queries + o.Queries, Hits: s.Hits + o.Hits, Evicted: s.Evicted + o.Evicted, Copied: s.Copied + o.Copied}
}

// Stats returns counts since the pool was created.
func (p *Pool) Stats() Stats {
	all := len(p.pages) - 1
	return Stats{Pages: all, Used: p.used, Cached: all - p.used - len(p.free), Free: len(p.free),
		Queries: p.queries, Hits: p.hits, Evicted: p.evicted, Copied: p.copied}
}

// Begin returns a text with the pages of the longest cached prefix of tokens. Its length
// ([Text.Len]) is that of the prefix; append the remaining tokens. A model must read at least the
// last token to continue a text, so pass all tokens except the last.
func (p *Pool) Begin(root Root, tokens []int32) *Text {
	t := &Text{pool: p, hash: hash(root)}
	p.queries += uint64(len(tokens) / p.rows)
	for ; len(tokens) >= p.rows; tokens = tokens[p.rows:] {
		h := chain(p.block, t.hash, tokens[:p.rows])
		id, ok := p.found[h]
		if !ok {
			break
		}
		p.addUser(id)
		t.pages, t.hash = append(t.pages, id), h
	}
	p.hits += uint64(len(t.pages))
	t.length, t.written, t.cached = len(t.pages)*p.rows, len(t.pages)*p.rows, len(t.pages)
	return t
}

// Find returns the number of pages that Begin would find, and how many of these no text uses now.
func (p *Pool) Find(root Root, tokens []int32) (found, unused int) {
	h := hash(root)
	for ; len(tokens) >= p.rows; tokens = tokens[p.rows:] {
		h = chain(p.block, h, tokens[:p.rows])
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

// Cached returns the number of tokens in the pages that Begin would find. It may be called
// concurrently with all other methods.
func (p *Pool) Cached(root Root, tokens []int32) (n int) {
	block := make([]byte, len(p.block))
	for h := hash(root); n+p.rows <= len(tokens); n += p.rows {
		h = chain(block, h, tokens[n:n+p.rows])
		p.mu.RLock()
		_, ok := p.found[h]
		p.mu.RUnlock()
		if !ok {
			break
		}
	}
	return n
}

// chain returns the hash of a page of tokens that follows the page with hash before. It overwrites
// block.
func chain(block []byte, before hash, tokens []int32) hash {
	copy(block, before[:])
	for i, id := range tokens {
		binary.LittleEndian.PutUint32(block[sha256.Size+4*i:], uint32(id))
	}
	return sha256.Sum256(block)
}

// available returns the number of available pages.
func (p *Pool) available() int { return len(p.pages) - 1 - p.used }

// alloc allocates a page for its first user. A page must be available.
func (p *Pool) alloc() int32 {
	var id int32
	if n := len(p.free); n > 0 {
		id, p.free = p.free[n-1], p.free[:n-1]
	} else {
		id = p.pages[len(p.pages)-1].after
		p.unlink(id)
		p.mu.Lock()
		delete(p.found, p.pages[id].hash)
		p.mu.Unlock()
		p.evicted++
	}
	p.pages[id] = page{users: 1}
	p.used++
	return id
}

// addUser adds a user to a page.
func (p *Pool) addUser(id int32) {
	if p.pages[id].users == 0 {
		p.unlink(id)
		p.used++
	}
	p.pages[id].users++
}

// leave removes a user from a page.
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

// unlink removes a page from the list of unused pages.
func (p *Pool) unlink(id int32) {
	g := &p.pages[id]
	p.pages[g.before].after, p.pages[g.after].before = g.after, g.before
}

// cache caches a full page of one text under a hash. If another page has that hash already, the
// other page replaces it.
func (p *Pool) cache(id int32, h hash) int32 {
	if other, ok := p.found[h]; ok {
		p.addUser(other)
		p.leave(id)
		return other
	}
	p.pages[id].cached, p.pages[id].hash = true, h
	p.mu.Lock()
	p.found[h] = id
	p.mu.Unlock()
	return id
}
