package pages

import "fmt"

// Text is the tokens of one text and the pages that their rows lie in.
type Text struct {
	pool    *Pool
	pages   []int32
	length  int
	written int
	cached  int     // pages that others may find
	hash    hash    // of the tokens of these
	tokens  []int32 // behind them
}

// Copy says that so many rows of the cache are to be copied, from one row on to another.
type Copy struct{ From, To, Rows int }

// Len is the number of tokens.
func (t *Text) Len() int { return t.length }

// Pages is the page table: token i lies in page i/rows. It holds until the next call of a
// method that changes the text.
func (t *Text) Pages() []int32 { return t.pages }

// Row is the row of the cache for token i < Len.
func (t *Text) Row(i int) int { return int(t.pages[i/t.pool.rows])*t.pool.rows + i%t.pool.rows }

// Append takes rows for tokens at the end of the text. Where the first of them belongs
// into a page that others use too, the text gets another one, and the rows that it has in
// that page are to be copied before any is written: Copy says which, and is zero
// otherwise. Where pages are missing, ErrFull, the text stays as it is. Errors: ErrText.
func (t *Text) Append(tokens ...int32) (c Copy, err error) {
	p := t.pool
	if p == nil {
		return c, fmt.Errorf("%w: it was released", ErrText)
	}
	if len(tokens) == 0 {
		return c, nil
	}
	in, last := t.length%p.rows, len(t.pages)-1 // rows of the last page
	need := (t.length+len(tokens)-1)/p.rows - last
	shared := in > 0 && p.pages[t.pages[last]].users > 1
	if shared {
		need++
	}
	if have := p.room(); need > have {
		return c, fmt.Errorf("%w: %d tokens behind %d need %d pages, %d of %d can be had", ErrFull, len(tokens), t.length, need, have, len(p.pages)-1)
	}
	if shared {
		old := t.pages[last]
		t.pages[last] = p.take()
		p.leave(old)
		p.copied++
		need--
		c = Copy{From: int(old) * p.rows, To: int(t.pages[last]) * p.rows, Rows: in}
	}
	for range need {
		t.pages = append(t.pages, p.take())
	}
	t.tokens = append(t.tokens, tokens...)
	t.length += len(tokens)
	return c, nil
}

// Commit says that the rows of the first n tokens are written, or will be before any run
// that is begun from here on reads or writes the cache. Full ones of their pages are cached
// from then on: where the same tokens lie in a page already, that one takes its place in
// the page table. Errors: ErrText.
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
		t.hash = p.chain(t.hash, rest[:p.rows])
		t.pages[t.cached] = p.cache(t.pages[t.cached], t.hash)
		rest = rest[p.rows:]
	}
	t.tokens = append(t.tokens[:0], rest...)
	return nil
}

// Fork is a text of the same tokens in the same pages, to go on in another way. All rows
// must be written. Errors: ErrText.
func (t *Text) Fork() (*Text, error) {
	if t.pool == nil {
		return nil, fmt.Errorf("%w: it was released", ErrText)
	}
	if t.written < t.length {
		return nil, fmt.Errorf("%w: %d of its %d rows are written, expected all", ErrText, t.written, t.length)
	}
	f := *t
	f.pages, f.tokens = append([]int32(nil), t.pages...), append([]int32(nil), t.tokens...)
	for _, id := range f.pages {
		f.pool.use(id)
	}
	return &f, nil
}

// Release gives the pages back; those that are cached stay for others to find. The text is empty
// then and takes no tokens; to release it again does nothing.
func (t *Text) Release() {
	for i := len(t.pages) - 1; i >= 0; i-- {
		t.pool.leave(t.pages[i])
	}
	*t = Text{}
}
