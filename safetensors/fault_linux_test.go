package safetensors

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFaultNamesTheFile: bytes that were handed out for good, touched on a goroutine of
// the user's own after the file was cut short.
func TestFaultNamesTheFile(t *testing.T) {
	skipEmulated(t)
	f := openFloats(t, 1<<16)
	data := lookup(t, f, "x").Bytes()
	require.NoError(t, os.Truncate(f.Path(), 4096))
	got := make(chan any)
	go func() {
		debug.SetPanicOnFault(true)
		defer func() { got <- recover() }()
		_ = fmt.Sprint(data[len(data)-1])
	}()
	recovered := <-got
	err := Fault(recovered)
	require.ErrorIs(t, err, ErrFault)
	_, offset, length := lookup(t, f, "x").Extent()
	assert.EqualError(t, err, fmt.Sprintf("safetensors: %s: byte %d of the file: file could not be read", f.Path(), offset+length-1))
	assert.Equal(t, err, Fault(fmt.Errorf("a task: %w", recovered.(error))))
	assert.NoError(t, Fault(nil))
	assert.NoError(t, Fault("other"))
	assert.NoError(t, Fault(errors.New("other")))

	require.NoError(t, func() (err error) { // of no file
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { err = Fault(recover()) }()
		var nowhere *int
		return fmt.Errorf("%d", *nowhere)
	}())
}
