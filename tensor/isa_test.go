package tensor

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
)

// each runs a test with every instruction set that this machine has.
func each(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	chosen := active
	defer func() { active = chosen }()
	for _, s := range available() {
		active = s
		t.Run(s.String(), f)
	}
}

func TestISAIsTheBestOne(t *testing.T) {
	if asked := os.Getenv("LORAFUSE_CPU"); asked != "" {
		assert.Equal(t, asked, active.String())
		return
	}
	have := available()
	assert.Equal(t, have[len(have)-1], active)
}
