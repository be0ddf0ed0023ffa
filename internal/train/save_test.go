package train_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
)

// Checkpoints are saved when an observer asks for them, beside those of save_steps, and
// never behind the last step.
func TestSavesWhenAsked(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"steps=6", "save_steps=4", "save_limit=0"})
	var asked, saved []int
	r, err := train.New(context.Background(), c, train.Observer{
		Save:  func(step int) bool { asked = append(asked, step); return step == 3 || step == 6 },
		Saved: func(step int, _ string) { saved = append(saved, step) },
	})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Train(context.Background())
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3, 4, 5}, asked)
	require.Equal(t, []int{3, 4}, saved)
}
