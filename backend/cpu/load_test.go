package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// A device that has the weights in place has no ring, and says so.
func TestLoadInPlace(t *testing.T) {
	for l, refused := range map[backend.LoadMode]bool{
		backend.LoadAuto: false, backend.LoadPlain: false, backend.LoadRing: true, backend.LoadRegister: true,
	} {
		dev, err := backend.Open(backend.CPU, backend.Options{Load: l})
		if refused {
			require.ErrorIs(t, err, backend.ErrLoad)
			require.EqualError(t, err, "backend cpu: cannot load weights by "+l.String()+": they are used in place, where they are mapped; expected auto or plain")
			continue
		}
		require.NoError(t, err)
		require.NoError(t, dev.Close())
	}
}
