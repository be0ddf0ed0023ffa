package gpu

import (
	"fmt"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// Every entry of the table names its device once, says where its numbers come from, and keeps to what kernels can do.
func TestThresholdTable(t *testing.T) {
	source := regexp.MustCompile(`^(derived|measured: [0-9a-f]{8}, .+)$`)
	seen := map[string]bool{}
	for _, e := range tuned {
		assert.False(t, seen[e.device], e.device)
		seen[e.device] = true
		assert.Regexp(t, `^(cuda|metal)( |$)`, e.device)
		assert.Regexp(t, source, e.source, e.device)
		assert.LessOrEqual(t, e.VectorRows, vectorMost, e.device)
		assert.LessOrEqual(t, e.ThinRows, thinMost, e.device)
		fields := reflect.ValueOf(e.Thresholds)
		for i := range fields.NumField() {
			assert.GreaterOrEqual(t, fields.Field(i).Int(), int64(0), "%s: %s", e.device, fields.Type().Field(i).Name)
		}
	}
	assert.True(t, seen[backend.CUDA] && seen[backend.Metal])
}

// The longest entry that describes a device counts.
func TestThresholdsOf(t *testing.T) {
	before := tuned
	t.Cleanup(func() { tuned = before })
	for _, device := range []string{"cuda 9.0 NVIDIA H200", "cuda 9.0", "cuda 9.0 NVIDIA H", "cuda 8.0"} {
		tuned = append(tuned, tuned[0])
		tuned[len(tuned)-1].device, tuned[len(tuned)-1].Thresholds = device, Thresholds{VectorRows: len(tuned)}
	}
	for device, rows := range map[string]int{"cuda 9.0 NVIDIA H200": 3, "cuda 9.0 NVIDIA H200 NVL": 3, "cuda 9.0 NVIDIA H100": 4, "cuda 9.0": 4, "cuda 8.0 NVIDIA A100": 6, "cuda 8.6": 8, backend.CUDA: 8, "metal Apple M4 Max": 8, "tpu": 0} {
		assert.Equal(t, rows, ThresholdsOf(device).VectorRows, device)
	}
}

// Programs can be planned and launched with each threshold at its ends.
func TestThresholdEnds(t *testing.T) {
	fields := reflect.TypeFor[Thresholds]()
	list := append(goldens(t), variants(t)...)
	for i := range fields.NumField() {
		for _, value := range []int{0, 1, 1 << 30} {
			t.Run(fmt.Sprint(fields.Field(i).Name, " ", value), func(t *testing.T) {
				target := Target{Precision: backend.BF16, Limits: h100, Sizes: DefaultSizes()}
				reflect.ValueOf(&target.Thresholds).Elem().Field(i).SetInt(int64(value))
				for _, p := range list {
					plan, err := New(p.Program, target)
					require.NoError(t, err, p.Name)
					fill(plan, len(p.Args), p.Dims, 0)
				}
			})
		}
	}
}
