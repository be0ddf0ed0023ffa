package catalog_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/catalog"
	"github.com/lorafuse/lorafuse/internal/model"
)

// TestTasks: a class has the tasks that its models in the test data have.
func TestTasks(t *testing.T) {
	configs, err := filepath.Glob("../../testdata/extra/*/config.json")
	require.NoError(t, err)
	require.NotEmpty(t, configs)
	for _, config := range configs {
		m, err := model.Open(filepath.Dir(config))
		require.NoError(t, err)
		row := catalog.Of(m.Config.Architecture)
		require.Equal(t, m.CheckTask(model.NextToken) == nil, slices.Contains(row.Trains, "language"), m.Config.Architecture)
		require.NotContains(t, row.String(), "\n")
		require.NoError(t, m.Close())
	}
}
