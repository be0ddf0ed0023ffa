package train_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
)

// Two runs in one folder would write the same files: the second is refused,
// before it reads anything, until the first is closed.
func TestOneRunInAFolder(t *testing.T) {
	c := configure(t, t.TempDir(), countingRows(20), "steps=2", "log.tensorboard=false")
	first, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	for _, resume := range []string{"", "latest"} {
		second := *c
		second.Resume, second.Model = resume, "no/such/model"
		_, err = train.New(context.Background(), &second, train.Observer{})
		require.ErrorIs(t, err, train.ErrRunning)
		host, _ := os.Hostname()
		require.ErrorContains(t, err, fmt.Sprintf("output_dir %s: another run is under way: process %d on %s, since 2", c.OutputDir, os.Getpid(), host))
	}
	_, _, err = train.DryRun(context.Background(), c, train.Observer{})
	require.NoError(t, err, "a dry run writes nothing")
	_, err = first.Train(context.Background())
	require.NoError(t, err)
	first.Close()
	first.Close()
	require.NoFileExists(t, filepath.Join(c.OutputDir, ".lorafuse.lock"))
	require.NoError(t, os.WriteFile(filepath.Join(c.OutputDir, ".lorafuse.lock"), []byte("left by the dead"), 0o666))
	second, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	second.Close()
}
