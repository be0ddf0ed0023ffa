package pages

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// world is a pool beside what it stands for: the rows of a cache, each with the text
// that it was computed from, and the beginnings that are cached, by name and not by hash.
type world struct {
	t      *rapid.T
	pool   *Pool
	rows   int
	cache  []string // of each row: all tokens up to its own
	texts  []*witness
	said   [][]int32          // of all texts that were
	cached map[string]*cached // by all tokens up to the end of a page
	clock  int
}

// witness is a text and what it should be.
type witness struct {
	*Text
	root      byte
	said      []int32
	committed int
}

// cached is a page that is found: how many texts use it, and since when nobody does.
type cached struct{ users, since int }

// upTo names the rows that come of the first n tokens.
func (w *witness) upTo(n int) string {
	b := []byte{w.root}
	for _, id := range w.said[:n] {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return string(b)
}

func rootOf(b byte) Root { return NewRoot([]byte{b}, nil) }

// begin starts a text with some of the tokens of another, and some of its own. What it
// finds must be what is cached, page by page.
func (w *world) begin(t *rapid.T) { w.start(t) }

// start is begin, and gives the text and the tokens that were not found.
func (w *world) start(t *rapid.T) (x *witness, rest []int32) {
	x = &witness{root: rapid.SampledFrom([]byte{1, 1, 1, 2}).Draw(t, "root")}
	if len(w.said) > 0 {
		from := rapid.SampledFrom(w.said).Draw(t, "like")
		x.said = append(x.said, from[:len(from)-rapid.IntRange(0, len(from)).Draw(t, "but")]...)
	}
	x.said = append(x.said, w.tokens(t)...)
	before, full := w.pool.Stats(), len(x.said)/w.rows
	cached := w.pool.Cached(rootOf(x.root), x.said)
	x.Text = w.pool.Begin(rootOf(x.root), x.said)
	found := 0
	for ; found < full && w.cached[x.upTo((found+1)*w.rows)] != nil; found++ {
		w.cached[x.upTo((found+1)*w.rows)].users++
	}
	require.Equal(w.t, found*w.rows, x.Len(), "what is found")
	require.Equal(w.t, found*w.rows, cached)
	after := w.pool.Stats()
	require.Equal(w.t, []uint64{uint64(full), uint64(found)}, []uint64{after.Queries - before.Queries, after.Hits - before.Hits})
	x.said, rest, x.committed = x.said[:x.Len():x.Len()], x.said[x.Len():], x.Len()
	w.texts = append(w.texts, x)
	return x, rest
}

// read is a text that is begun and read to its end.
func (w *world) read(t *rapid.T) {
	x, rest := w.start(t)
	w.append(x, rest)
	w.write(x, x.Len())
}

func (w *world) tokens(t *rapid.T) []int32 {
	return rapid.SliceOfN(rapid.SampledFrom([]int32{1, -1}), 0, 3*w.rows).Draw(t, "tokens")
}

func (w *world) some(t *rapid.T) *witness {
	if len(w.texts) == 0 {
		w.read(t)
	}
	return rapid.SampledFrom(w.texts).Draw(t, "text")
}

// add appends tokens to a text.
func (w *world) add(t *rapid.T) {
	w.append(w.some(t), w.tokens(t))
}

// append appends tokens and writes their rows, or finds that there is no room for them.
func (w *world) append(x *witness, tokens []int32) {
	before, length, table := w.pool.Stats(), x.Len(), slices.Clone(x.Pages())
	need := (length+len(tokens)+w.rows-1)/w.rows - len(table)
	shared := func(y *witness) bool { return y != x && slices.Contains(y.Pages(), table[len(table)-1]) }
	copies := len(tokens) > 0 && length%w.rows > 0 && slices.ContainsFunc(w.texts, shared)
	if copies {
		need++
	}
	c, err := x.Append(tokens...)
	after := w.pool.Stats()
	if need > before.Free+before.Cached {
		require.ErrorIs(w.t, err, ErrFull)
		require.Equal(w.t, before, after)
		require.Equal(w.t, length, x.Len())
		require.Equal(w.t, table, x.Pages())
		return
	}
	require.NoError(w.t, err)
	require.Equal(w.t, copies, c != Copy{})
	for range after.Evicted - before.Evicted {
		w.evict()
	}
	if c != (Copy{}) {
		require.Equal(w.t, length%w.rows, c.Rows)
		copy(w.cache[c.To:][:c.Rows], w.cache[c.From:][:c.Rows])
	}
	for i, id := range tokens {
		x.said = append(x.said, id)
		w.cache[x.Row(length+i)] = x.upTo(length + i + 1)
	}
	w.said = append(w.said, slices.Clone(x.said))
}

// evict forgets what a plain search finds: of the pages that nobody uses and no other
// page goes on from, the one that waits longest.
func (w *world) evict() {
	oldest := ""
	for name, k := range w.cached {
		leaf := true
		for other := range w.cached {
			leaf = leaf && (len(other) != len(name)+4*w.rows || other[:len(name)] != name)
		}
		if k.users == 0 && leaf && (oldest == "" || k.since < w.cached[oldest].since) {
			oldest = name
		}
	}
	require.NotEmpty(w.t, oldest, "nothing is left to evict")
	delete(w.cached, oldest)
}

// commit says that some rows are written.
func (w *world) commit(t *rapid.T) {
	x := w.some(t)
	w.write(x, rapid.IntRange(x.committed, x.Len()).Draw(t, "written"))
}

func (w *world) write(x *witness, n int) {
	require.NoError(w.t, x.Commit(n))
	for i := x.committed / w.rows; (i+1)*w.rows <= n; i++ {
		name := x.upTo((i + 1) * w.rows)
		if w.cached[name] == nil {
			w.cached[name] = &cached{}
		}
		w.cached[name].users++
	}
	x.committed = n
}

// fork lets another text go on from one.
func (w *world) fork(t *rapid.T) {
	x := w.some(t)
	f, err := x.Fork()
	if x.committed < x.Len() {
		require.ErrorIs(w.t, err, ErrText)
		return
	}
	require.NoError(w.t, err)
	w.texts = append(w.texts, &witness{f, x.root, slices.Clone(x.said), x.committed})
	for i := range x.committed / w.rows {
		w.cached[x.upTo((i+1)*w.rows)].users++
	}
}

func (w *world) release(t *rapid.T) { w.end(w.some(t)) }

func (w *world) end(x *witness) {
	for i := x.committed / w.rows; i > 0; i-- {
		k := w.cached[x.upTo(i*w.rows)]
		k.users--
		w.clock++
		k.since = w.clock
	}
	x.Release()
	x.Release()
	w.texts = slices.DeleteFunc(w.texts, func(y *witness) bool { return x == y })
}

// check holds the pool against the world: every text reads its own rows, and pages are
// counted as they lie.
func (w *world) check(*rapid.T) {
	used := map[int32]bool{}
	for _, x := range w.texts {
		require.Len(w.t, x.Pages(), (x.Len()+w.rows-1)/w.rows)
		for _, id := range x.Pages() {
			used[id] = true
		}
		for i := range x.Len() {
			require.Equal(w.t, x.upTo(i+1), w.cache[x.Row(i)], "row %d", i)
		}
	}
	idle := 0
	for _, k := range w.cached {
		if k.users == 0 {
			idle++
		}
	}
	s := w.pool.Stats()
	require.Equal(w.t, []int{len(used), idle}, []int{s.Used, s.Cached})
	require.Equal(w.t, s.Pages, s.Used+s.Cached+s.Free)
}

// live plays one life of a pool. At its end all pages are there for the next text.
func live(t *rapid.T) {
	o := Options{Pages: rapid.SampledFrom([]int{8, 1, 2, 3, 5, 12, 20}).Draw(t, "pages"), Rows: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "rows")}
	pool, err := New(o)
	require.NoError(t, err)
	w := &world{t: t, pool: pool, rows: o.Rows, cache: make([]string, o.Pages*o.Rows), cached: map[string]*cached{}}
	steps := map[string]func(*rapid.T){"begin": w.begin, "read": w.read, "add": w.add, "commit": w.commit, "fork": w.fork, "release": w.release, "rest": w.check}
	for range 120 {
		steps[rapid.SampledFrom([]string{"rest", "read", "release", "read", "release", "begin", "add", "commit", "fork", "release"}).Draw(t, "step")](t)
		w.check(t)
	}
	for len(w.texts) > 0 {
		w.end(w.texts[0])
	}
	w.check(t)
	x := pool.Begin(rootOf(3), nil)
	_, err = x.Append(make([]int32, o.Pages*o.Rows)...)
	require.NoError(t, err, "a page is lost")
	seen := slices.Clone(x.Pages())
	slices.Sort(seen)
	for i, id := range seen {
		require.Equal(t, int32(i), id)
	}
	_, err = x.Append(0)
	require.ErrorIs(t, err, ErrFull)
}

func TestPool(t *testing.T) { rapid.Check(t, live) }

func FuzzPool(f *testing.F) { f.Fuzz(rapid.MakeFuzz(live)) }

// text is one that has the tokens, all of them written.
func text(t testing.TB, p *Pool, root Root, tokens ...int32) *Text {
	x := p.Begin(root, tokens)
	_, err := x.Append(tokens[x.Len():]...)
	require.NoError(t, err)
	require.NoError(t, x.Commit(len(tokens)))
	return x
}

func newPool(t testing.TB, pages, rows int) *Pool {
	p, err := New(Options{Pages: pages, Rows: rows})
	require.NoError(t, err)
	return p
}

// What a text ends with makes room before what it begins with, and what waits longest
// before what was asked for since.
func TestEviction(t *testing.T) {
	p := newPool(t, 4, 1)
	text(t, p, Root{}, 1, 2).Release()
	text(t, p, Root{}, 3, 4).Release()
	p.Begin(Root{}, []int32{1}).Release()
	found := func(tokens ...int32) int {
		x := p.Begin(Root{}, tokens)
		defer x.Release()
		return x.Len()
	}
	x := text(t, p, Root{1}, 9)
	require.Equal(t, []int32{1}, x.Pages()) // that of 2, which waits longer than that of 1
	y := text(t, p, Root{1}, 9, 8)
	require.Equal(t, []int32{1, 3}, y.Pages()) // that of 4
	require.Equal(t, []int{1, 1}, []int{found(1, 2), found(3, 4)})
	require.Equal(t, Stats{Pages: 4, Used: 2, Cached: 2, Queries: 12, Hits: 4, Evicted: 2}, p.Stats())
}

// Adapters and salts part texts, and a digest does not run into a salt.
func TestRoots(t *testing.T) {
	roots := []Root{NewRoot(nil, nil), NewRoot([]byte("a"), nil), NewRoot(nil, []byte("a")), NewRoot([]byte("ab"), []byte("c")), NewRoot([]byte("a"), []byte("bc"))}
	p := newPool(t, 8, 2)
	for i, s := range roots {
		require.NotContains(t, roots[:i], s)
		require.Zero(t, p.Begin(s, []int32{1, 2, 3}).Len())
		text(t, p, s, 1, 2, 3).Release()
		require.Equal(t, 2, p.Begin(s, []int32{1, 2, 3}).Len())
	}
	require.Equal(t, NewRoot([]byte("a"), []byte("b")), NewRoot([]byte("a"), []byte("b")))
}

// Two texts that were read at the same time end up in the same pages.
func TestSameTextTwice(t *testing.T) {
	p := newPool(t, 8, 2)
	var texts []*Text
	for range 2 {
		x := p.Begin(Root{}, []int32{1, 2, 3})
		_, err := x.Append(1, 2, 3)
		require.NoError(t, err)
		texts = append(texts, x)
	}
	require.Equal(t, 4, p.Stats().Used)
	for _, x := range texts {
		require.NoError(t, x.Commit(3))
	}
	require.Equal(t, []int32{0, 1}, texts[0].Pages())
	require.Equal(t, []int32{0, 3}, texts[1].Pages())
	require.Equal(t, Stats{Pages: 8, Used: 3, Free: 5, Queries: 2}, p.Stats())
}

func TestErrors(t *testing.T) {
	wrong := map[string]Options{
		"wrong size of a pool of pages: 3 rows of a page, expected a power of two":           {Pages: 1, Rows: 3},
		"wrong size of a pool of pages: 0 rows of a page, expected a power of two":           {Pages: 1},
		"wrong size of a pool of pages: 0 pages of 16 rows, expected 1 to 134217727":         {Rows: 16},
		"wrong size of a pool of pages: 134217728 pages of 16 rows, expected 1 to 134217727": {Pages: 1 << 27, Rows: 16},
		"wrong size of a pool of pages: -1 pages of 1 rows, expected 1 to 2147483647":        {Pages: -1, Rows: 1},
		"wrong size of a pool of pages: -8 rows of a page, expected a power of two":          {Pages: 1, Rows: -8},
	}
	if math.MaxInt > math.MaxInt32 {
		large := math.MaxInt32
		large++ // no constant, which would not fit elsewhere
		wrong["wrong size of a pool of pages: 2147483648 pages of 1 rows, expected 1 to 2147483647"] = Options{Pages: large, Rows: 1}
		wrong["wrong size of a pool of pages: 1 pages of 4294967296 rows, expected 1 to 0"] = Options{Pages: 1, Rows: 2 * large}
	}
	for want, o := range wrong {
		_, err := New(o)
		require.ErrorIs(t, err, ErrSize)
		require.EqualError(t, err, want)
	}
	p := newPool(t, 3, 4)
	x := text(t, p, Root{}, 1, 2, 3, 4, 5)
	_, err := x.Append(1, 2, 3, 4, 5, 6, 7, 8)
	require.ErrorIs(t, err, ErrFull)
	require.EqualError(t, err, "the pool of pages is full: 8 tokens behind 5 need 2 pages, 1 of 3 can be had")
	for n, want := range map[int]string{4: "4 rows are written, expected 5 to 5", 6: "6 rows are written, expected 5 to 5"} {
		err := x.Commit(n)
		require.ErrorIs(t, err, ErrText)
		require.ErrorContains(t, err, want)
	}
	_, err = x.Append(6)
	require.NoError(t, err)
	_, err = x.Fork()
	require.ErrorIs(t, err, ErrText)
	require.ErrorContains(t, err, "5 of its 6 rows are written, expected all")
	x.Release()
	_, err = x.Append(1)
	require.ErrorIs(t, err, ErrText)
	_, err = x.Fork()
	require.ErrorIs(t, err, ErrText)
	require.ErrorIs(t, x.Commit(0), ErrText)
}

// Looking up a prompt takes as long as hashing it; a text that goes on allocates nothing
// but what its own slices grow by.
func BenchmarkBegin(b *testing.B) {
	for _, n := range []int{512, 8192} {
		for _, hit := range []bool{false, true} {
			b.Run(fmt.Sprintf("tokens%d/hit %v", n, hit), func(b *testing.B) {
				p, tokens := newPool(b, n/16+1, 16), make([]int32, n)
				if hit {
					text(b, p, Root{}, tokens...).Release()
				}
				b.ReportAllocs()
				for b.Loop() {
					p.Begin(Root{}, tokens).Release()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n/16), "ns/page")
			})
		}
	}
}

// BenchmarkToken is a token of a text whose pages others have to leave.
func BenchmarkToken(b *testing.B) {
	p := newPool(b, 64, 16)
	x := p.Begin(Root{}, nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if x.Len() == 1024 {
			x.Release()
			x = p.Begin(Root{}, nil)
		}
		if _, err := x.Append(int32(i)); err != nil {
			b.Fatal(err)
		}
		if err := x.Commit(x.Len()); err != nil {
			b.Fatal(err)
		}
	}
}
