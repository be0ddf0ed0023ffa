package store_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// place is an open store with a table and a log.
type place struct {
	*store.Store
	notes *store.Table[note]
	log   *store.Log[string]
}

func open(t *testing.T, dir string) *place {
	t.Helper()
	p := &place{notes: store.NewTable[note]("notes"), log: store.NewLog[string]("log")}
	var err error
	p.Store, err = store.Open(dir, nil, p.notes, p.log)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

func (p *place) put(t *testing.T, notes ...note) {
	t.Helper()
	require.NoError(t, p.Update(func(tx *store.Tx) (err error) {
		for _, n := range notes {
			err = errors.Join(err, p.notes.Put(tx, n))
		}
		return err
	}))
}

func byKey(a, b note) int { return strings.Compare(a.ID, b.ID) }

// TestTable: a transaction is done as a whole or not at all, for readers and when the store is opened
// again, and clients see their own records.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	one, two, three := note{"1", "ann", "x"}, note{"2", "bob", "y"}, note{"3", "", "z"}
	p.put(t, three, two, one)
	why := errors.New("why")
	err := p.Update(func(tx *store.Tx) error {
		require.NoError(t, p.notes.Remove(tx, "1"))
		require.NoError(t, p.notes.Put(tx, note{"4", "ann", "w"}))
		_, found := p.notes.Get("4")
		require.False(t, found, "before the end of the transaction")
		return why
	})
	require.ErrorIs(t, err, why)
	for range 2 {
		assert.ElementsMatch(t, []note{one, two, three}, p.notes.All())
		assert.Equal(t, []note{one, three}, p.notes.List(keys.Client{Name: "ann"}, byKey))
		assert.Equal(t, []note{one, two, three}, p.notes.List(keys.Client{Name: "root", Admin: true}, byKey))
		_, found := p.notes.Find(keys.Client{Name: "ann"}, "2")
		assert.False(t, found)
		require.NoError(t, p.Close())
		require.ErrorIs(t, p.Update(func(tx *store.Tx) error { return nil }), store.ErrClosed)
		p = open(t, dir)
	}
	require.NoError(t, p.Update(func(tx *store.Tx) error { return p.notes.Remove(tx, "1") }))
	assert.ElementsMatch(t, []note{two, three}, p.notes.All())

	var orders sync.Map
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			assert.NoError(t, p.Update(func(tx *store.Tx) error {
				n, err := tx.Order()
				_, twice := orders.LoadOrStore(n, true)
				assert.False(t, twice)
				return err
			}))
		})
	}
	all.Wait()
}

// TestOpen: a store is for one process, and another format is refused.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	created := 0
	create := func(tx *store.Tx) error {
		created++
		return tx.SetMeta("model", "tiny")
	}
	for range 2 {
		s, err := store.Open(dir, create)
		require.NoError(t, err)
		var model string
		require.NoError(t, s.Update(func(tx *store.Tx) error {
			found, err := tx.Meta("model", &model)
			require.True(t, found)
			return err
		}))
		assert.Equal(t, "tiny", model)
		_, err = store.Open(dir, create)
		require.ErrorIs(t, err, store.ErrInUse)
		require.NoError(t, s.Close())
	}
	assert.Equal(t, 1, created)
	s, err := store.Open(dir, nil)
	require.NoError(t, err)
	require.NoError(t, s.Update(func(tx *store.Tx) error { return tx.SetMeta("format", 9) }))
	require.NoError(t, s.Close())
	_, err = store.Open(dir, nil)
	require.ErrorIs(t, err, store.ErrFormat)
	require.ErrorContains(t, err, "found format 9, expected 1")
}

// TestLog: entries are numbered by list, and read from the latest on.
func TestLog(t *testing.T) {
	p := open(t, t.TempDir())
	for _, text := range []string{"a", "b", "c", "d"} {
		require.NoError(t, p.Update(func(tx *store.Tx) error {
			require.NoError(t, p.log.Append(tx, "other", func(uint64) string { return "" }))
			return p.log.Append(tx, "list", func(n uint64) string { return text + string(rune('0'+n)) })
		}))
	}
	latest := func(before uint64, most int) (all []string) {
		require.NoError(t, p.log.Latest("list", before, func(s string) bool {
			all = append(all, s)
			return len(all) < most
		}))
		return all
	}
	assert.Equal(t, []string{"d4", "c3", "b2", "a1"}, latest(0, 9))
	assert.Equal(t, []string{"d4", "c3"}, latest(0, 2))
	assert.Equal(t, []string{"b2", "a1"}, latest(3, 9))
	assert.Equal(t, []string{"d4"}, latest(99, 1))
	require.NoError(t, p.log.Latest("none", 0, func(string) bool { panic("there is none") }))
	require.NoError(t, p.Update(func(tx *store.Tx) error {
		return p.log.Drop(tx, "list", func(s string) (gone, stop bool) { return s != "c3", s == "b2" })
	}))
	assert.Equal(t, []string{"c3", "a1"}, latest(0, 9))
}

// TestSweep removes what has no record and unfinished writes.
func TestSweep(t *testing.T) {
	p := open(t, t.TempDir())
	require.NoError(t, p.Sweep("none", nil))
	for _, name := range []string{"kept", "gone"} {
		require.NoError(t, os.MkdirAll(p.Path("files", name, "within"), 0o777))
	}
	require.NoError(t, p.Sweep("files", func(name string) bool { return name == "kept" }))
	assert.DirExists(t, p.Path("files", "kept", "within"))
	assert.NoDirExists(t, p.Path("files", "gone"))
}

// TestSpace counts to the byte.
func TestSpace(t *testing.T) {
	p := open(t, t.TempDir())
	x := p.NewSpace(10, 1)
	require.NoError(t, x.Reserve(6))
	require.ErrorIs(t, x.Reserve(5), store.ErrLimit)
	x.Add("a", 4, 6)
	x.Add("a", 4, 0)
	require.NoError(t, x.Reserve(6))
	require.ErrorIs(t, x.Reserve(1), store.ErrLimit)
	x.Return(6)
	x.Drop("a")
	x.Drop("a")
	require.NoError(t, x.Reserve(10))
	require.NoError(t, p.NewSpace(0, 1).Reserve(1<<20))
	require.ErrorIs(t, p.NewSpace(0, 1<<60).Reserve(0), store.ErrNearlyFull)
}
