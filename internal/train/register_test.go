package train

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/train/config"
)

// TestRegister: a program without the package of a task names the import that it needs, and a
// name belongs to one task.
func TestRegister(t *testing.T) {
	c := config.Default()
	c.Task = "unregistered"
	r := &Run{Setup: Setup{cfg: c}}
	err := r.openTask(t.Context())
	require.ErrorIs(t, err, ErrTask)
	require.ErrorContains(t, err, `add the import _ "github.com/lorafuse/lorafuse/internal/train/task"`)
	require.PanicsWithValue(t, "train: language is registered twice", func() { Register(config.TaskLanguage, Task{}) })
}
