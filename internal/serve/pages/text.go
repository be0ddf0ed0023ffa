package pages

import "fmt"

// Text holds the tokens of one text and the pages with their rows.
type Text struct {
	pool    *Pool
	pages   []int32
	length  int
	written int
	cached  int     // number of pages that others may find
	hash    hash    // of the tokens in these pages
	tokens  []int32 // after the last of them
}

// Copy is a request to copy Rows rows of the cache, from row From on to row To on.
type Copy struct{ From, To, Rows int }

// Len returns the number of tokens.
func (t *Text) Len() int { return t.length }

// Pages returns the page table: token i is in page i/rows. It is valid until the next call of a
// method that changes the text.
func (t *Text) Pages() []int32 { return t.pages }

// Row returns the cache row of token i < Len.
func (t *Text) Row(i int) int { return int(t.pages[i/t.pool.rows])*t.pool.rows + i%t.pool.rows }

// Append allocates rows for tokens at the end of the text. If the first token goes into a page that
// other texts use too, the text gets another page, and the rows it has in the shared page must be
// copied before any is written: the returned Copy names them, and is zero otherwise. If no page is
// available, Append returns ErrFull and the text is unchanged. Errors: ErrText.
func (t *Text) Append(tokens ...int32) (c Copy, err error) {
	p := t.pool
	if p == nil {
		return c, fmt.Errorf("%w: it was released", ErrText)
	}
	if len(tokens) == 0 {
		return c, nil
	}
	need, shared := t.missing(len(tokens)), t.shares()
	if shared {
		need++
	}
	if have := p.available(); need > have {
		return c, fmt.Errorf("%w: %d tokens behind %d need %d pages, %d of %d can be had", ErrFull, len(tokens), t.length, need, have, len(p.pages)-1)
	}
	if shared {
		last := t.length / p.rows
		old := t.pages[last]
		t.pages[last] = p.alloc()
		p.leave(old)
		p.copied++
		need--
		c = Copy{From: int(old) * p.rows, To: int(t.pages[last]) * p.rows, Rows: t.length % p.rows}
	}
	for range need {
		t.pages = append(t.pages, p.alloc())
	}
	t.tokens = append(t.tokens, tokens...)
	t.length += len(tokens)
	return c, nil
}

// Reserve allocates pages for the next n tokens, which Append then uses. It returns false, and allocates none, if too few
// are available, or if Append will have to copy rows.
func (t *Text) Reserve(n int) bool {
	if t.pool == nil || t.shares() || t.missing(n) > t.pool.available() {
		return false
	}
	for range t.missing(n) {
		t.pages = append(t.pages, t.pool.alloc())
	}
	return true
}

// missing returns the number of pages that n more tokens need. It is negative if more are reserved.
func (t *Text) missing(n int) int { return (t.length+n-1)/t.pool.rows + 1 - len(t.pages) }

// shares reports whether the next token goes into a page that other texts use too.
func (t *Text) shares() bool {
	return t.length%t.pool.rows > 0 && t.pool.pages[t.pages[t.length/t.pool.rows]].users > 1
}

// Commit declares that the rows of the first n tokens are written, or will be before any later run
// reads or writes the cache. Their full pages are cached from then on. If a cached page has the
// same tokens, it replaces the page in the page table. Errors: ErrText.
func (t *Text) Commit(n int) error {
	p := t.pool
	if p == nil {
		return fmt.Errorf("%w: it was released", ErrText)
	}
	if n < t.written || n > t.length {
		return fmt.Errorf("%w: %d rows are written, expected %d to %d", ErrText, n, t.written, t.length)
	}
	t.written = n
	rest := t.tokens
	for ; (t.cached+1)*p.rows <= n; t.cached++ {
		t.hash = chain(p.block, t.hash, rest[:p.rows])
		t.pages[t.cached] = p.cache(t.pages[t.cached], t.hash)
		rest = rest[p.rows:]
	}
	t.tokens = append(t.tokens[:0], rest...)
	return nil
}

// Fork returns a text with the same tokens in the same pages, which may continue differently. All
// rows must be written. Errors: ErrText.
func (t *Text) Fork() (*Text, error) {
	if t.pool == nil {
		return nil, fmt.Errorf("%w: it was released", ErrText)
	}
	if t.written < t.length {
		return nil, fmt.Errorf("%w: %d of its %d rows are written, expected all", ErrText, t.written, t.length)
	}
	f := *t
	used := (t.length + t.pool.rows - 1) / t.pool.rows // without reserved pages
	f.pages, f.tokens = append([]int32(nil), t.pages[:used]...), append([]int32(nil), t.tokens...)
	for _, id := range f.pages {
		f.pool.addUser(id)
	}
	return &f, nil
}

// Release releases the pages; cached pages can still be found by others. The text is then empty and
// accepts no tokens. Releasing it again does nothing.
func (t *Text) Release() {
	for i := len(t.pages) - 1; i >= 0; i-- {
		t.pool.leave(t.pages[i])
	}
	*t = Text{}
}
