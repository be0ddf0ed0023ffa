package batching

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A request goes to the device that holds its adapter, unless that is much busier than another one.
func TestPick(t *testing.T) {
	const step = 256
	for name, c := range map[string]struct {
		all  []candidate
		want int
	}{
		"one device":                         {[]candidate{{score: 9000}}, 0},
		"least score":                        {[]candidate{{score: 20}, {score: 10}, {score: 30}}, 1},
		"fewest adapters among equals":       {[]candidate{{10, false, 3}, {10, false, 1}, {10, false, 2}}, 1},
		"first among equals":                 {[]candidate{{10, false, 1}, {10, false, 1}}, 0},
		"fewer adapters do not beat a score": {[]candidate{{11, false, 0}, {10, false, 9}}, 1},
		"holder":                             {[]candidate{{score: 0}, {1024, true, 5}}, 1},
		"holder that is too busy":            {[]candidate{{score: 0}, {1025, true, 5}}, 0},
		"holder beside a busy device":        {[]candidate{{score: 1000}, {3024, true, 5}}, 1},
		"holder that is much busier":         {[]candidate{{score: 1000}, {3025, true, 5}}, 0},
		"best of two holders":                {[]candidate{{100, true, 1}, {score: 0}, {50, true, 9}}, 2},
		"two holders that are too busy":      {[]candidate{{2000, true, 1}, {score: 3}, {1031, true, 9}}, 1},
	} {
		assert.Equal(t, c.want, pick(c.all, step), name)
	}
}
