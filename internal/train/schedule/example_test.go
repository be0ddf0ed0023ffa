package schedule_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/train/schedule"
)

func Example() {
	s, err := schedule.New(schedule.Config{
		Kind: schedule.Cosine, LearningRate: 0.003, Steps: 300, WarmupSteps: 20,
	})
	if err != nil {
		panic(err)
	}
	for _, step := range []int{0, 10, 20, 160, 299} {
		fmt.Printf("step %3d: %.6f\n", step, s.At(step))
	}
	// Output:
	// step   0: 0.000000
	// step  10: 0.001500
	// step  20: 0.003000
	// step 160: 0.001500
	// step 299: 0.000000
}
