package safetensors

import (
	"bytes"
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHold(t *testing.T) {
	data := fiveRows(t)
	far, err := OpenReaderAt(bytes.NewReader(data), int64(len(data)), "far")
	require.NoError(t, err)
	for _, f := range []*File{openFloats(t, 5), far} {
		v := lookup(t, f, "x")
		first, err := v.Hold()
		require.NoError(t, err)
		second, err := v.Hold()
		require.NoError(t, err)
		assert.Equal(t, floats(10), first.Bytes())
		err = f.Close()
		assert.ErrorIs(t, err, ErrInUse)
		assert.ErrorContains(t, err, "2 uses or holds")
		first.Release()
		first.Release()
		assert.Nil(t, first.Bytes())
		assert.ErrorIs(t, f.Close(), ErrInUse, "released twice counts once")
		assert.Equal(t, floats(10), second.Bytes())
		second.Release()
		assert.Zero(t, mappings(t, f.Path())-map[bool]int{true: 1}[v.InPlace()])
		require.NoError(t, f.Close())
		assert.Zero(t, mappings(t, f.Path()), "a hold leaves nothing pinned")
		_, err = v.Hold()
		assert.ErrorIs(t, err, ErrClosed)
	}
}

// Users, holders and closers of one file meet, while the garbage collector runs:
// whoever gets bytes gets the right ones, whoever comes late is told so.
func TestConcurrentUseHoldAndClose(t *testing.T) {
	for range 20 {
		f := openFloats(t, 1000)
		want := floats(2000)
		check := func(data []byte) error {
			if !bytes.Equal(data, want) {
				return errors.New("other bytes")
			}
			return nil
		}
		use := func(v *View) error { return v.WithBytes(check) }
		hold := func(v *View) error {
			h, err := v.Hold()
			if err != nil {
				return err
			}
			defer h.Release()
			return check(h.Bytes())
		}
		read := func(v *View) error {
			data := make([]byte, v.Len())
			if _, err := v.ReadAt(data, 0); err != nil {
				return err
			}
			return check(data)
		}
		var wg sync.WaitGroup
		for _, work := range []func(*View) error{use, use, hold, hold, read} {
			wg.Go(func() {
				for {
					v, err := f.Lookup("x")
					if err == nil {
						err = work(v)
					}
					if err != nil {
						assert.ErrorIs(t, err, ErrClosed)
						return
					}
					time.Sleep(50 * time.Microsecond) // or Close never finds nobody
				}
			})
		}
		wg.Go(func() { runtime.GC() })
		runtime.Gosched()
		for err := f.Close(); err != nil; err = f.Close() {
			assert.ErrorIs(t, err, ErrInUse)
			runtime.Gosched()
		}
		wg.Wait()
		assert.Zero(t, mappings(t, f.Path()))
	}
}

// Bytes that were pinned race with Close: they are right or nil, and stay right.
func TestConcurrentBytesAndClose(t *testing.T) {
	for range 50 {
		f := openFloats(t, 1000)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				v, err := f.Lookup("x")
				if err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					return
				}
				data := v.Bytes()
				runtime.Gosched()
				if data != nil {
					assert.Equal(t, floats(2000), data)
				}
				runtime.KeepAlive(v)
			})
		}
		assert.NoError(t, f.Close())
		wg.Wait()
	}
}

// A hold that nobody releases keeps the file from closing, and nothing more: the
// mapping goes when nobody refers to it.
func TestForgottenHold(t *testing.T) {
	path := func() string {
		path := filepath.Join(t.TempDir(), "x.safetensors")
		require.NoError(t, WriteFile(path, []Entry{EntryOf("x", []int32{1, 2}, 2)}, nil))
		f, err := Open(path)
		require.NoError(t, err)
		_, err = lookup(t, f, "x").Hold()
		require.NoError(t, err)
		assert.ErrorIs(t, f.Close(), ErrInUse)
		return path
	}()
	assert.Eventually(t, func() bool { runtime.GC(); return mappings(t, path) == 0 }, time.Minute, 5*time.Millisecond)
}
