package backendtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/ir"
)

func TestEveryOperationHasACase(t *testing.T) {
	rows := map[ir.Op]int{}
	for _, c := range cases() {
		rows[c.op]++
	}
	for _, op := range ir.Ops() {
		require.NotZero(t, rows[op], "no row for %v in the tables of this package", op)
	}
}

func TestCPU(t *testing.T) {
	RunAll(t, func() (backend.Device, error) { return cpu.Open(backend.Options{}) })
}
