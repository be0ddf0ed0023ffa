package all_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/all"
)

func TestAuto(t *testing.T) {
	assert.Subset(t, backend.Registered(), []string{backend.CPU, backend.Null})
	dev, err := backend.Open(backend.Auto, backend.Options{})
	require.NoError(t, err)
	assert.NotEqual(t, backend.Null, dev.Info().Backend)
	require.NoError(t, dev.Close())
}
