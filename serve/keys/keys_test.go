package keys_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/serve/keys"
)

func TestSet(t *testing.T) {
	s := keys.NewSet([]string{"sesame", "open"})
	for key, want := range map[string]bool{"sesame": true, "open": true, "Sesame": false, "sesam": false, "sesame ": false, "": false} {
		require.Equal(t, want, s.Has(key), key)
	}
	require.Nil(t, keys.NewSet(nil))
	require.False(t, keys.NewSet(nil).Has(""))
	require.True(t, keys.NewSet([]string{"a", "a"}).Has("a"))
	require.Equal(t, "key-d0c04f4b", keys.Name("sesame"))
}
